"""What the nursery is handed for one attempt: everything looked up, nothing left to decide."""

from __future__ import annotations

import marshal

HEAD = 4


class Launch:
    """An attempt made ready by the agent, as marshal carries it to the nursery."""

    def __init__(
        self,
        key: str,
        place: str,
        argv: list[str],
        env: dict[str, str],
        cwd: str,
        user: tuple[int, int, list[int]] | None,
        cpus: list[int],
        limit_s: float | None,
        grace_s: float,
    ) -> None:
        self.key = key
        self.place = place
        self.argv = argv
        self.env = env
        self.cwd = cwd
        self.user = user
        self.cpus = cpus
        self.limit_s = limit_s
        self.grace_s = grace_s

    def pack(self) -> bytes:
        """Length and content, as `take` reads them."""
        body = marshal.dumps(tuple(vars(self).values()))
        return len(body).to_bytes(HEAD, "big") + body


def take(buffer: bytearray) -> Launch | None:
    """Remove the first launch from a buffer; None while it is not all there."""
    end = HEAD + int.from_bytes(buffer[:HEAD], "big")
    if len(buffer) < max(end, HEAD + 1):
        return None
    launch = Launch(*marshal.loads(buffer[HEAD:end]))  # noqa: S302 - from the agent that made it
    del buffer[:end]
    return launch
