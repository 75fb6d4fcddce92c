"""The commands corral nodes and corral gpus."""
