"""The execution engine for another Corral: forwards jobs to the controller of another cluster."""
