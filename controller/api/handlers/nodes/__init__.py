"""Routes for nodes and for hosts that the controller reaches by SSH."""
