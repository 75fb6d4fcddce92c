"""Marks: signed environment variables of an attempt's processes. Marks identify the processes of an attempt
whose supervisor was killed.

Every process can change its own environment, so a mark has two parts. `CORRAL_SPOOL=<spool>/attempts/42.1`
names the attempt, and `CORRAL_MARK=<code>` proves that the agent of this spool has set the name. The code is
an HMAC of the attempt and the uid of its processes. The HMAC key is in the spool, in a file that only the
agent's user can read.

A process with a mark belongs to the attempt if the process runs as the agent's user, or if its code is valid
for its uid. Attempts that an earlier version of Corral started have no code. A process of such an attempt
belongs to the attempt if it runs as the user in the record.

Example: attempt 7.1 is bob's, attempt 8.1 is ada's. Bob starts a process with `CORRAL_SPOOL=.../attempts/8.1`
and the `CORRAL_MARK` of 7.1. The code is valid only for 7.1, so the process does not count as a process of
8.1.

The fork server must stay small and imports this module, so this module imports only small modules.
"""

from __future__ import annotations

import os

SPOOL_VARIABLE = "CORRAL_SPOOL"
MARK_VARIABLE = "CORRAL_MARK"
_KEY = "key"
_KEY_BYTES = 32


def load_key(spool: str) -> str:
    """Return the HMAC key of this spool. Create the key if the spool has none."""
    # Import trusted_paths only in this function, because supervisors must stay small and do not call this
    # function.
    from wire import trusted_paths

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
        pass  # Use the key although it is not stored. The next agent creates another key.
    return made


def mark_code(key: str, attempt: str, uid: int) -> str:
    """Return the code of a mark (the value of CORRAL_MARK): an HMAC with `key`. The code proves that a
    process with this uid belongs to an attempt such as 42.1.
    """
    import hmac

    return hmac.new(key.encode("ascii"), f"{attempt} {uid}".encode(), "sha256").hexdigest()


class MarkedProcess:
    """The environment and the uid of a process. Raises OSError if the process has ended or cannot be read."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.environ = _read(f"/proc/{pid}/environ").split(b"\0")

    @property
    def uid(self) -> int:
        """Return the uid of the process from its status, and not the owner of /proc/<pid>: that owner is
        root if the process has disabled memory dumps.
        """
        for line in _read(f"/proc/{self._pid}/status").split(b"\n"):
            if line.startswith(b"Uid:"):
                real, effective, saved, _ = map(int, line[4:].split())
                # Use the highest of the real, effective and saved uid. For a setuid-root program, the highest
                # uid is the uid of the user that started the program.
                return max(real, effective, saved)
        raise ProcessLookupError(self._pid)

    def attempt(self, spool: str) -> str:
        """Return the attempt of this spool, such as 42.1, that the environment of the process names. Return
        an empty text if the environment names no attempt of this spool. The code that proves the name
        (CORRAL_MARK) is not checked.
        """
        start = os.fsencode(f"{SPOOL_VARIABLE}={spool}/attempts/")
        # If the process has CORRAL_SPOOL twice, use the first one, like getenv().
        named = next(
            (each for each in self.environ if each.startswith(start[: len(SPOOL_VARIABLE) + 1])), b""
        )
        return os.fsdecode(named[len(start) :]) if named.startswith(start) else ""

    def is_early(self, spool: str) -> bool:
        """Return whether the process still has the environment of the fork server. Only fork servers,
        supervisors, and children of supervisors before exec have this environment.
        """
        return os.fsencode(f"{SPOOL_VARIABLE}={spool}") in self.environ

    def proves(self, key: str, attempt: str) -> bool:
        """Return whether the process belongs to this attempt: the process runs as the agent's user, or
        CORRAL_MARK in its environment is valid for the attempt. `key` is the HMAC key of the spool.
        """
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
