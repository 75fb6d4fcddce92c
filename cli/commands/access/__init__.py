"""The commands about access: tokens, the caller, and the login."""
