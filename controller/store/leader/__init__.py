"""Leadership: which of several controllers on one PostgreSQL database decides and writes."""
