"""The commands about access: tokens, and the user and role of the caller."""
