"""Live names for the shell's completion; without a controller there are none, quietly."""

from __future__ import annotations

from wire.text import plain


def jobs(incomplete: str) -> list[tuple[str, str]]:
    """Active jobs, and the words that mean several."""
    from wire.client import Client, Refused, Unreachable
    from wire.words import JobState

    words = [("last", "the newest job"), ("all", "every active job")]
    try:
        page = Client(timeout_s=1.0).jobs(states=[s for s in JobState if not s.terminal], limit=200)
        words += [(job.label, plain(f"{job.name} {job.user} {job.state.value}")) for job in page.jobs]
    except (Refused, Unreachable):
        pass
    return [word for word in words if word[0].startswith(incomplete)]


def nodes(incomplete: str) -> list[tuple[str, str]]:
    """The names of all nodes."""
    from wire.client import Client, Refused, Unreachable

    try:
        known = Client(timeout_s=1.0).nodes().nodes
    except (Refused, Unreachable):
        return []
    return [(node.name, node.state.value) for node in known if node.name.startswith(incomplete)]
