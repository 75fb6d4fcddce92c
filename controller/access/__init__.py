"""Access to the API: the texts of tokens, certificates of TLS, and the audit log."""
