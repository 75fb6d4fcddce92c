"""Routes for access: the caller, tokens, the audit log, and the login with OpenID Connect."""
