"""Background tasks of the controller, which watch data paths and GPUs, call placement hooks, delete old jobs,
and estimate starts."""
