"""Routes for access: the caller, tokens, the audit log, and the certificate of the controller's authority."""
