"""Runs the prolog and the epilog: programs of the site that run before and after every attempt, as the
agent's user.

Prolog and epilog do not get the environment of the job's user. The fork server must stay small and
imports this module, so this module imports only small modules.
"""

from __future__ import annotations

import os
import signal
import time

from wire import trusted_paths
from wire.trusted_paths import UntrustedPath

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_WAKING = (signal.SIGCHLD, signal.SIGTERM)
_LOG = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW


def run_hook(
    name: str,
    argv: list[str],
    env: dict[str, str],
    directory: str,
    timeout_s: float,
    stop: Callable[[], bool],
) -> str:
    """Run a prolog or epilog and wait for its end. Return why the program failed, or an empty string if its
    exit code was 0 or `argv` is empty.

    If this process gets SIGTERM while the program runs, `stop` is called, which reads the stop order. The
    program is killed if `stop` returns True, or if the program runs longer than `timeout_s` seconds.
    """
    if not argv:
        return ""
    log = f"{directory}/hooks"
    try:
        if os.geteuid() == 0:
            trusted_paths.check_file(argv[0])
        pid = os.posix_spawn(
            argv[0],
            argv,
            {**env, "CORRAL_HOOK": name},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 1, log, _LOG, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
            setsigmask=(),
            setsigdef=signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP},
        )
    except UntrustedPath as error:
        return f"the {name} is not run: {error}"
    except (OSError, ValueError) as error:
        return f"the {name} {argv[0]} cannot run: {getattr(error, 'strerror', error)}"
    why, status = _wait(pid, timeout_s, stop)
    if why:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        return f"the {name} {why}"
    if os.WIFSIGNALED(status):
        return f"the {name} was killed by signal {os.WTERMSIG(status)}; see {log}"
    code = os.WEXITSTATUS(status)
    return f"the {name} failed with exit code {code}; see {log}" if code else ""


def _wait(pid: int, timeout_s: float, stop: Callable[[], bool]) -> tuple[str, int]:
    deadline = time.monotonic() + timeout_s
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return "", status
        left = deadline - time.monotonic()
        if left <= 0:
            return f"took longer than {timeout_s:g} s", 0
        woken = signal.sigtimedwait(_WAKING, left)
        if woken is not None and woken.si_signo == signal.SIGTERM and stop():
            return "was interrupted", 0
