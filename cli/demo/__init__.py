"""The command corral demo, which runs a simulated cluster."""
