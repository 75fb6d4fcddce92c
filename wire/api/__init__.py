"""Bodies of requests and answers of the HTTP API. The paths are in docs/api.md and /v1/openapi.json."""
