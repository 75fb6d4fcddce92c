"""Turning a launch into the job's own process: as the agent's user quickly, as another user carefully."""

from __future__ import annotations

import errno
import os
import signal

from agent.group import Group
from agent.launch import Launch

_OUTPUT = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
_DEFAULTED = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
"""Whatever Python, or somebody who started us with nohup, ignores: the job does not."""


class NotStarted(Exception):
    """The job's program could not be started; says in words why."""


def start(launch: Launch, group: Group, argv: list[str], task: dict[str, str]) -> int:
    """The pid of a task's first process, leader of its own session, in its group; raises NotStarted."""
    env = {**launch.env, **task} if task else launch.env
    quick = launch.user is None and not group.is_whole
    pid = (_spawn if quick else _fork)(launch, group, argv, env)
    if launch.oom_score:
        _offer(pid, launch.oom_score)
    return pid


def _offer(pid: int, oom_score: int) -> None:
    """Let the kernel end it, and what it starts from now on, before others if memory runs out."""
    try:
        with open(f"/proc/{pid}/oom_score_adj", "w", encoding="ascii") as file:
            file.write(str(oom_score))
    except OSError:
        pass  # it is over already


def rehearse(launch: Launch) -> None:
    """All that starting it needs, as its user and without doing it; raises NotStarted."""
    answer, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            change_user(launch)
            _enter(launch.cwd)
            _make(launch.checkpoint_dir)
            program = _find((launch.wraps[0] if launch.wraps else launch.argv)[0], launch.env)
            if not os.access(program, os.X_OK):
                reason = "Permission denied" if os.path.exists(program) else "No such file or directory"
                raise NotStarted(f"cannot run {program}: {reason}")
        except NotStarted as error:
            os.write(tell, str(error).encode("utf-8", "replace")[:4_096])
        except BaseException as error:
            os.write(tell, f"cannot become its user: {error}".encode("utf-8", "replace")[:4_096])
        finally:
            os._exit(0)
    os.close(tell)
    sentence = os.read(answer, 4_096)
    os.close(answer)
    os.waitpid(pid, 0)
    if sentence:
        raise NotStarted(sentence.decode("utf-8", "replace"))


def change_user(launch: Launch) -> None:
    """Become who the job runs as, for good; raises OSError."""
    if launch.user is not None:
        uid, gid, groups = launch.user
        os.setgroups(groups)
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)


def complain(place: str, sentence: str) -> None:
    """Tell the job's owner where he looks for errors: in its stderr."""
    try:
        descriptor = os.open(f"{place}/stderr", os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK)
        os.write(descriptor, f"corral: {sentence}\n".encode("utf-8", "replace"))
        os.close(descriptor)
    except OSError:
        pass


def _spawn(launch: Launch, group: Group, argv: list[str], env: dict[str, str]) -> int:
    """The same user: no copy of this process is made, which is half of what an attempt costs."""
    _enter(launch.cwd)
    _make(launch.checkpoint_dir)
    program = _find(argv[0], launch.env)
    output = f"{launch.place}/stdout", f"{launch.place}/stderr"
    try:
        group.enter()
    except OSError as error:
        group.leave()
        raise NotStarted(f"cannot enter its control group: {error}") from None
    try:
        return os.posix_spawn(
            program,
            argv,
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
    finally:
        group.leave()


def _fork(launch: Launch, group: Group, argv: list[str], env: dict[str, str]) -> int:
    """Another user: whatever fails on the way there ends the attempt, so that nothing runs as root."""
    failure, tell = os.pipe()
    try:
        pid = group.fork()
    except OSError as error:
        raise NotStarted(f"cannot fork into its control group: {error.strerror}") from None
    if pid == 0:
        _become(launch, argv, env, tell)
    os.close(tell)
    sentence = os.read(failure, 4_096)
    os.close(failure)
    if sentence:
        os.waitpid(pid, 0)
        raise NotStarted(sentence.decode("utf-8", "replace"))
    return pid


def _become(launch: Launch, argv: list[str], env: dict[str, str], tell: int) -> None:
    """In the child: the working directory and the program are looked for as the user who may see them."""
    try:
        os.setsid()
        for name, target in (("stdout", 1), ("stderr", 2)):
            os.dup2(os.open(f"{launch.place}/{name}", _OUTPUT, 0o600), target)
            if launch.user is not None:
                os.fchown(target, *launch.user[:2])
        change_user(launch)
        _enter(launch.cwd)
        _make(launch.checkpoint_dir)
        program = _find(argv[0], launch.env)
        for number in _DEFAULTED:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        try:
            os.execve(program, argv, env)  # noqa: S606 - no shell is the point
        except (OSError, ValueError) as error:
            raise NotStarted(_why(program, error)) from None
    except NotStarted as error:
        os.write(tell, str(error).encode("utf-8", "replace")[:4_096])
    except BaseException as error:
        whom = "itself" if launch.user is None else f"user {launch.user[0]}"
        os.write(tell, f"cannot become {whom}: {error}".encode("utf-8", "replace")[:4_096])
    finally:
        os._exit(127)


def execute(launch: Launch) -> None:
    """Become the launch's program in this very process; raises NotStarted."""
    _enter(launch.cwd)
    program = _find(launch.argv[0], launch.env)
    try:
        os.execve(program, launch.argv, launch.env)  # noqa: S606 - no shell is the point
    except (OSError, ValueError) as error:
        raise NotStarted(_why(program, error)) from None


def _enter(folder: str) -> None:
    try:
        os.chdir(folder)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise NotStarted(f"cannot enter the working directory {folder}: {reason}") from None


def _make(folder: str) -> None:
    try:
        if folder:
            os.makedirs(folder, exist_ok=True)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise NotStarted(f"cannot make the checkpoint directory {folder}: {reason}") from None


def _find(program: str, env: dict[str, str]) -> str:
    """Where the program is: along the job's own PATH, from the job's own directory."""
    if "/" in program:
        return program
    for folder in env.get("PATH", "").split(":"):
        candidate = f"{folder or '.'}/{program}"
        try:
            if os.access(candidate, os.X_OK) and not os.path.isdir(candidate):
                return candidate
        except ValueError:
            break
    raise NotStarted(f"cannot run {program}: not found in PATH ({env.get('PATH', '')})")


def _why(program: str, error: OSError | ValueError) -> str:
    if not isinstance(error, OSError):
        return f"cannot run {program}: {error}"
    if error.errno == errno.ENOENT and os.path.exists(program):
        return f"cannot run {program}: the interpreter that its first line names does not exist"
    if error.errno == errno.ENOEXEC:
        return f"cannot run {program}: it is not a program; a script begins with #! and its interpreter"
    return f"cannot run {program}: {error.strerror}"
