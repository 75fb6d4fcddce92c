"""The execution engine for Kubernetes: runs each attempt in a Pod, through the API server."""
