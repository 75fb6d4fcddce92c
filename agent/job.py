"""Turning a launch into the job's own process: as the agent's user quickly, as another user carefully."""

from __future__ import annotations

import errno
import os
import signal

from agent.launch import Launch

_OUTPUT = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
_DEFAULTED = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
"""Whatever Python, or somebody who started us with nohup, ignores: the job does not."""


class NotStarted(Exception):
    """The job's program could not be started; says in words why."""


def start(launch: Launch, task: dict[str, str]) -> int:
    """The pid of a task's first process, leader of its own session; raises NotStarted."""
    env = {**launch.env, **task} if task else launch.env
    return _spawn(launch, env) if launch.user is None else _fork(launch, env, *launch.user)


def _spawn(launch: Launch, env: dict[str, str]) -> int:
    """The same user: no copy of this process is made, which is half of what an attempt costs."""
    _enter(launch.cwd)
    program = _find(launch)
    output = f"{launch.place}/stdout", f"{launch.place}/stderr"
    try:
        return os.posix_spawn(
            program,
            launch.argv,
            env,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, target, path, _OUTPUT, 0o600) for target, path in enumerate(output, 1)
            ],
            setsid=True,
            setsigmask=(),
            setsigdef=_DEFAULTED,
        )
    except (OSError, ValueError) as error:
        raise NotStarted(_why(program, error)) from None


def _fork(launch: Launch, env: dict[str, str], uid: int, gid: int, groups: list[int]) -> int:
    """Another user: whatever fails on the way there ends the attempt, so that nothing runs as root."""
    failure, tell = os.pipe()
    try:
        pid = os.fork()
    except OSError as error:
        raise NotStarted(f"cannot fork: {error.strerror}") from None
    if pid == 0:
        _become(launch, env, uid, gid, groups, tell)
    os.close(tell)
    sentence = os.read(failure, 4_096)
    os.close(failure)
    if sentence:
        os.waitpid(pid, 0)
        raise NotStarted(sentence.decode("utf-8", "replace"))
    return pid


def _become(launch: Launch, env: dict[str, str], uid: int, gid: int, groups: list[int], tell: int) -> None:
    """In the child: the working directory and the program are looked for as the user who may see them."""
    try:
        os.setsid()
        for name, target in (("stdout", 1), ("stderr", 2)):
            os.dup2(os.open(f"{launch.place}/{name}", _OUTPUT, 0o600), target)
            os.fchown(target, uid, gid)
        os.setgroups(groups)
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
        _enter(launch.cwd)
        program = _find(launch)
        for number in _DEFAULTED:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        try:
            os.execve(program, launch.argv, env)  # noqa: S606 - no shell is the point
        except (OSError, ValueError) as error:
            raise NotStarted(_why(program, error)) from None
    except NotStarted as error:
        os.write(tell, str(error).encode("utf-8", "replace")[:4_096])
    except BaseException as error:
        os.write(tell, f"cannot become user {uid}: {error}".encode("utf-8", "replace")[:4_096])
    finally:
        os._exit(127)


def _enter(folder: str) -> None:
    try:
        os.chdir(folder)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise NotStarted(f"cannot enter the working directory {folder}: {reason}") from None


def _find(launch: Launch) -> str:
    """Where the program is: along the job's own PATH, from the job's own directory."""
    program = launch.argv[0]
    if "/" in program:
        return program
    for folder in launch.env.get("PATH", "").split(":"):
        candidate = f"{folder or '.'}/{program}"
        try:
            if os.access(candidate, os.X_OK) and not os.path.isdir(candidate):
                return candidate
        except ValueError:
            break
    raise NotStarted(f"cannot run {program}: not found in PATH ({launch.env.get('PATH', '')})")


def _why(program: str, error: OSError | ValueError) -> str:
    if not isinstance(error, OSError):
        return f"cannot run {program}: {error}"
    if error.errno == errno.ENOENT and os.path.exists(program):
        return f"cannot run {program}: the interpreter that its first line names does not exist"
    if error.errno == errno.ENOEXEC:
        return f"cannot run {program}: it is not a program; a script begins with #! and its interpreter"
    return f"cannot run {program}: {error.strerror}"
