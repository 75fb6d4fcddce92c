"""Routes for nodes and for hosts that join by SSH."""
