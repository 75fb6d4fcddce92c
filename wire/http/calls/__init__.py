"""The methods of the API client, grouped as the handlers of the API: jobs, nodes, policy and service."""
