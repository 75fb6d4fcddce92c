"""The bodies of the HTTP API, in and out. Paths stand in docs/api.md and /v1/openapi.json."""
