"""What the nursery is handed for one attempt: everything looked up, nothing left to decide."""

from __future__ import annotations

import marshal

from agent.group import Part

HEAD = 4


class Launch:
    """An attempt made ready by the agent, as marshal carries it to the nursery."""

    def __init__(
        self,
        key: str,
        place: str,
        argv: list[str] | None = None,
        env: dict[str, str] | None = None,
        tasks: list[dict[str, str]] | None = None,
        cwd: str = "/",
        user: tuple[int, int, list[int]] | None = None,
        cpus: list[int] | None = None,
        numa: list[int] | None = None,
        groups: list[Part] | None = None,
        memory_mib: int = 0,
        prolog: list[str] | None = None,
        epilog: list[str] | None = None,
        hook_s: float = 0.0,
        hook_env: dict[str, str] | None = None,
        log_bytes: int = 0,
        barrier: bool = False,
        limit_s: float | None = None,
        grace_s: float = 0.0,
        warn: tuple[int, float] | None = None,
        checkpoint_command: list[str] | None = None,
        checkpoint_signal: int = 0,
        checkpoint_dir: str = "",
        checkpoint_keep: int = 0,
        lease_s: float | None = None,
        oom_score: int = 0,
        scratch: str = "",
        scratch_mib: int = 0,
        scratch_end: bool = True,
        wraps: list[list[str]] | None = None,
        inside: list[str] | None = None,
        undo: list[list[str]] | None = None,
        asks: list[list[str]] | None = None,
    ) -> None:
        self.key = key
        self.place = place
        self.argv = argv or []
        self.env = env or {}
        self.tasks = tasks or [{}]
        self.cwd = cwd
        self.user = user
        self.cpus = cpus or []
        self.numa = numa or []
        self.groups = groups or []
        self.memory_mib = memory_mib
        self.prolog = prolog or []
        self.epilog = epilog or []
        self.hook_s = hook_s
        self.hook_env = hook_env or {}
        self.log_bytes = log_bytes
        self.barrier = barrier
        self.limit_s = limit_s
        self.grace_s = grace_s
        self.warn = warn
        self.checkpoint_command = checkpoint_command or []
        self.checkpoint_signal = checkpoint_signal
        self.checkpoint_dir = checkpoint_dir
        self.checkpoint_keep = checkpoint_keep
        self.lease_s = lease_s
        self.oom_score = oom_score
        self.scratch = scratch
        self.scratch_mib = scratch_mib
        self.scratch_end = scratch_end
        self.wraps = wraps or []
        """Of a job in a container: what stands before its command, for each task."""
        self.inside = inside or []
        """What stands before a command that is to run beside it in there."""
        self.undo = undo or []
        """What takes away what is left of the containers."""
        self.asks = asks or []
        """What tells when each was started, and whether it was ended for want of memory."""

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
