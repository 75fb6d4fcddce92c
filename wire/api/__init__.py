"""The JSON bodies of requests and answers of the HTTP API. docs/api.md and /v1/openapi.json list the
paths.
"""
