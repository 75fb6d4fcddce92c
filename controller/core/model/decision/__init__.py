"""The result of an input: its events, its effects (messages to agents) and its reply."""
