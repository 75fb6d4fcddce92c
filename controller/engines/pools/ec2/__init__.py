"""The machine pool of Amazon EC2: instances are started and ended by the EC2 API."""
