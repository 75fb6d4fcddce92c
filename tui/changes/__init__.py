"""Changes the cluster as the user orders: asks for confirmation, sends the request and shows the result."""
