"""The metrics of GET /metrics: the table of all metrics, their values, and the text format of Prometheus."""
