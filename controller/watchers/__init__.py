"""Background tasks of the controller, which watch GPUs and the paths of `--after-data`, call placement hooks,
delete old jobs, and estimate starts."""
