"""Changes to the cluster: the user confirms them, the application sends them and shows the results."""
