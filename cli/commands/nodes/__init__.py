"""corral nodes and corral gpus."""
