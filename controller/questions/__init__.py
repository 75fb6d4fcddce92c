"""Questions about the future, answered beside the controller by a replica of its engine."""
