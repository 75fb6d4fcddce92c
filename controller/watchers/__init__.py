"""Background tasks of the controller: data paths, GPU problems, idle GPUs, placement hooks, retention,
samples."""
