"""The execution engine for containers: runs jobs through the socket of Docker or Podman."""
