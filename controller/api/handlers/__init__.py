"""The functions that handle API requests, grouped by resource: jobs, nodes, policy and the controller
itself."""
