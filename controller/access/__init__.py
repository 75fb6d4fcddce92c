"""Access to the API: the texts of tokens, certificates of TLS, the audit log, and the login."""
