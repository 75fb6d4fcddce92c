"""Background tasks of the daemon: data paths, GPU readings, placement hooks, retention, start samples."""
