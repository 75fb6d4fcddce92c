"""corral demo."""
