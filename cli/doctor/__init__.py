"""The checks of corral doctor: the way to the controller, the controller's machine, and the cluster."""
