"""The command corral demo."""
