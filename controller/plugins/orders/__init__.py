"""Queue orders: each is a plugin that ranks the waiting jobs."""
