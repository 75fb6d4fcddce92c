"""Marks in the environment of an attempt's processes, which identify them after their supervisor was killed.

Every process can write its own environment. So a mark has two parts: `CORRAL_SPOOL=<spool>/attempts/42.1`
names the attempt, and `CORRAL_MARK=<code>` proves that the agent of this spool gave the name. The code is an
HMAC over the attempt and the user id that it runs as, under a key in the spool that only the agent's user can
read.

A process belongs to an attempt if it runs as the agent's user, or as the user that the code was made for.
Attempts of earlier versions have no code: their processes count if they run as the user in the record.

Example: bob reads `CORRAL_MARK` of his job 7.1 and starts `env CORRAL_SPOOL=.../attempts/8.1 sleep 600`. The
code was made for 7.1, so the process is not taken for one of 8.1.

Imported by the fork server: only cheap imports.
"""

from __future__ import annotations

import os

SPOOL_VARIABLE = "CORRAL_SPOOL"
MARK_VARIABLE = "CORRAL_MARK"
_KEY = "key"
_KEY_BYTES = 32


def load_key(spool: str) -> str:
    """The key of this spool, created if there is none. Only the agent's user can write to the spool."""
    from wire import trusted_paths  # imported here, as `hmac` below, because supervisors do not need it

    try:
        descriptor = trusted_paths.open_file(f"{spool}/{_KEY}")
        try:
            found = os.read(descriptor, 2 * _KEY_BYTES).decode("ascii", "replace")
        finally:
            os.close(descriptor)
        if len(found) == 2 * _KEY_BYTES:
            return found
    except FileNotFoundError:
        pass
    made, new = os.urandom(_KEY_BYTES).hex(), f"{spool}/.{_KEY}"
    try:
        descriptor = trusted_paths.open_file(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            os.write(descriptor, made.encode("ascii"))
        finally:
            os.close(descriptor)
        os.rename(new, f"{spool}/{_KEY}")
    except OSError:
        pass  # because a key without a file serves this agent, and the next one makes another
    return made


def mark_code(key: str, attempt: str, uid: int) -> str:
    """The proof that a process of this user belongs to an attempt such as 42.1."""
    import hmac

    return hmac.new(key.encode("ascii"), f"{attempt} {uid}".encode(), "sha256").hexdigest()


class MarkedProcess:
    """The environment and the user of a process; raises OSError if it has ended or cannot be read."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.environ = _read(f"/proc/{pid}/environ").split(b"\0")

    @property
    def uid(self) -> int:
        """Its user id. Not the owner of /proc/<pid>, which is root for a process that hides its memory."""
        for line in _read(f"/proc/{self._pid}/status").split(b"\n"):
            if line.startswith(b"Uid:"):
                real, effective, saved, _ = map(int, line[4:].split())
                return max(
                    real, effective, saved
                )  # because a setuid program that a user started counts as that user's
        raise ProcessLookupError(self._pid)

    def attempt(self, spool: str) -> str:
        """The attempt of this spool that it names, without proof; empty if it names none."""
        start = os.fsencode(f"{SPOOL_VARIABLE}={spool}/attempts/")
        # The first one, because getenv() takes the first one, too.
        named = next(
            (each for each in self.environ if each.startswith(start[: len(SPOOL_VARIABLE) + 1])), b""
        )
        return os.fsdecode(named[len(start) :]) if named.startswith(start) else ""

    def is_early(self, spool: str) -> bool:
        """Whether it has the fork server's environment: a supervisor, or a child of one before exec."""
        return os.fsencode(f"{SPOOL_VARIABLE}={spool}") in self.environ

    def proves(self, key: str, attempt: str) -> bool:
        """Whether the agent gave it the name of this attempt."""
        uid = self.uid
        if uid == os.geteuid():
            return True
        given = next((each for each in self.environ if each.startswith(f"{MARK_VARIABLE}=".encode())), b"")
        if not given:
            return False
        import hmac

        right = mark_code(key, attempt, uid).encode("ascii")
        return hmac.compare_digest(given[len(MARK_VARIABLE) + 1 :], right)


def _read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:
        return file.read()
