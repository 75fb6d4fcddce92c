"""The commands corral nodes, corral gpus, corral engines and corral maintain."""
