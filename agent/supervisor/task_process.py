"""Starts the tasks of a job. Uses posix_spawn for a task that runs as the agent's user, without cgroup v2,
--output and --error, if its umask takes no right from the owner of new files. Any other task needs a fork.
"""

from __future__ import annotations

import errno
import os
import signal

from agent.attempts.launch.launch_spec import LaunchSpec
from agent.isolation.attempt_cgroup import AttemptCgroup
from agent.processes import process_tree
from agent.processes.job_user import become_user

_OUTPUT = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
_DEFAULTED = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
"""Signals that get their default action when a job starts, because Python or nohup may ignore some of
them.
"""


class TaskNotStarted(Exception):
    """Raised if the job's program could not be started. The message is the reason. `unfit` is True if another
    node may be able to start the program.
    """

    def __init__(self, why: str, unfit: bool = False) -> None:
        super().__init__(why)
        self.unfit = unfit


def start_task(launch: LaunchSpec, cgroup: AttemptCgroup, argv: list[str], task: dict[str, str]) -> int:
    """Start a task in the attempt's cgroup, as leader of a new session. Return the pid of the task. `task`
    has the environment variables that only this task gets. Raise TaskNotStarted if the task cannot start.
    """
    env = {**launch.env, **task} if task else launch.env
    quick = launch.user is None and not cgroup.is_v2 and not launch.output and not launch.error
    if quick and not (launch.umask or 0) & 0o700:
        # posix_spawn applies the umask also to the log files that it creates. Use posix_spawn only if the
        # umask takes no right from the owner of new files.
        pid = _spawn(launch, cgroup, argv, env)
    else:
        pid = _fork(launch, cgroup, argv, env, first_task=task is launch.tasks[0])
    if launch.oom_score:
        _set_oom_score(pid, launch.oom_score)
    return pid


def _set_oom_score(pid: int, oom_score: int) -> None:
    """Set the oom_score_adj of a process: the kernel kills processes with a high value first when the host
    runs out of memory. Future children of the process inherit the value.
    """
    try:
        with open(f"/proc/{pid}/oom_score_adj", "w", encoding="ascii") as file:
            file.write(str(oom_score))
    except OSError:
        pass  # Continue: the process has already exited.


def check_start(launch: LaunchSpec) -> None:
    """Check as the job's user, without starting the program, that the program, the working directory and the
    checkpoint directory can be used. Raise TaskNotStarted if one of them cannot be used.
    """
    answer, error_pipe = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            become_user(launch)
            _enter(launch.cwd)
            _make(launch.checkpoint_dir)
            program = _find(
                (launch.container_commands[0] if launch.container_commands else launch.argv)[0], launch.env
            )
            if not os.access(program, os.X_OK):
                reason = "Permission denied" if os.path.exists(program) else "No such file or directory"
                raise TaskNotStarted(f"cannot run {program}: {reason}")
        except TaskNotStarted as error:
            os.write(error_pipe, str(error).encode("utf-8", "replace")[:4_096])
        except BaseException as error:
            os.write(error_pipe, f"cannot become its user: {error}".encode("utf-8", "replace")[:4_096])
        finally:
            os._exit(0)
    os.close(error_pipe)
    sentence = os.read(answer, 4_096)
    os.close(answer)
    os.waitpid(pid, 0)
    if sentence:
        raise TaskNotStarted(sentence.decode("utf-8", "replace"))


def close_descriptors(kept: int) -> None:
    """Close all descriptors of this process except `kept`."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) != kept:
            try:
                os.close(int(name))
            except OSError:
                # Skip the descriptor that listdir used to read this directory, because listdir has closed it.
                continue


def write_notice(place: str, sentence: str) -> None:
    """Append a line `corral: ...` to the job's stderr, or to its stdout if the job has no stderr. `place` is
    the attempt's spool directory.
    """
    for name in ("stderr", "stdout"):
        try:
            descriptor = os.open(f"{place}/{name}", os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            continue
        except OSError:
            return
        try:
            os.write(descriptor, f"corral: {sentence}\n".encode("utf-8", "replace"))
        except OSError:
            pass
        finally:
            os.close(descriptor)
        return


def _spawn(launch: LaunchSpec, cgroup: AttemptCgroup, argv: list[str], env: dict[str, str]) -> int:
    """Start the task with posix_spawn, as the user of this process, and return its pid. This is faster than
    fork, because posix_spawn does not copy the memory mappings of this process.
    """
    _enter(launch.cwd)
    _make(launch.checkpoint_dir)
    program = _find(argv[0], launch.env)
    try:
        cgroup.enter()
    except OSError as error:
        cgroup.leave()
        raise TaskNotStarted(f"cannot enter its control cgroup: {error.strerror}", unfit=True) from None
    before = None if launch.umask is None else os.umask(launch.umask)
    try:
        return os.posix_spawn(
            program,
            argv,
            env,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, target, path, _OUTPUT, 0o600) for target, path in _logs(launch)
            ],
            setsid=True,
            setsigmask=(),
            setsigdef=_DEFAULTED,
        )
    except (OSError, ValueError) as error:
        raise TaskNotStarted(_why(program, error)) from None
    finally:
        if before is not None:
            os.umask(before)
        cgroup.leave()


def _fork(
    launch: LaunchSpec, cgroup: AttemptCgroup, argv: list[str], env: dict[str, str], *, first_task: bool
) -> int:
    """Start the task with fork, as the job's user, and return its pid. If the change of user or the start
    fails, raise TaskNotStarted.
    """
    failure, error_pipe = os.pipe()
    supervisor = os.getpid()
    try:
        pid = cgroup.fork()
    except OSError as error:
        raise TaskNotStarted(f"cannot fork into its control cgroup: {error.strerror}", unfit=True) from None
    if pid == 0:
        _become(launch, argv, env, error_pipe, supervisor, first_task)
    os.close(error_pipe)
    sentence = os.read(failure, 4_096)
    os.close(failure)
    if sentence:
        os.waitpid(pid, 0)
        raise TaskNotStarted(sentence.decode("utf-8", "replace"))
    return pid


def _become(
    launch: LaunchSpec,
    argv: list[str],
    env: dict[str, str],
    error_pipe: int,
    supervisor: int,
    first_task: bool,
) -> None:
    """Change this process, the child after a fork, to the job's user and directory, redirect its output, and
    exec the program. If that fails, write the error to `error_pipe` and exit.
    """
    try:
        os.setsid()
        for target, path in _logs(launch):
            os.dup2(os.open(path, _OUTPUT, 0o600), target)
            if launch.user is not None:
                os.fchown(target, *launch.user[:2])
        become_user(launch)
        process_tree.kill_when_parent_ends(supervisor)
        _enter(launch.cwd)
        _make(launch.checkpoint_dir)
        if launch.umask is not None:
            os.umask(launch.umask)
        _redirect(launch, first_task)
        program = _find(argv[0], launch.env)
        for number in _DEFAULTED:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        try:
            os.execve(program, argv, env)  # noqa: S606 - no shell is the point
        except (OSError, ValueError) as error:
            raise TaskNotStarted(_why(program, error)) from None
    except TaskNotStarted as error:
        os.write(error_pipe, str(error).encode("utf-8", "replace")[:4_096])
    except BaseException as error:
        target_user = "itself" if launch.user is None else f"user {launch.user[0]}"
        os.write(error_pipe, f"cannot become {target_user}: {error}".encode("utf-8", "replace")[:4_096])
    finally:
        os._exit(127)


def _logs(launch: LaunchSpec) -> list[tuple[int, str]]:
    """Return the log files for descriptor 1 (stdout) and descriptor 2 (stderr), as (descriptor, path). If the
    job sets `merge_output`, both are written to the same log.
    """
    return [
        (1, f"{launch.directory}/stdout"),
        (2, f"{launch.directory}/{'stdout' if launch.merge_output else 'stderr'}"),
    ]


def _redirect(launch: LaunchSpec, first_task: bool) -> None:
    """Redirect stdout and stderr to the files that the user chose with --output and --error. This process
    must already run as the job's user, in the working directory.

    If only --output is set, stderr goes to the same file, as in Slurm. The first task writes the path of each
    file as one line to the log in the spool.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOCTTY
    # Set O_NONBLOCK, because without it open() blocks on a named pipe until a reader opens the pipe.
    flags |= os.O_NONBLOCK
    if first_task and not launch.append:
        flags |= os.O_TRUNC
    redirects = [("stdout", launch.output, (1,) if launch.error else (1, 2)), ("stderr", launch.error, (2,))]
    for name, path, targets in redirects:
        if not path:
            continue
        try:
            try:
                descriptor = os.open(path, flags, 0o666)
            except FileNotFoundError:
                # Create the directory of the output file. Some programs that call sbatch create this
                # directory only when they have received the job's id, and the job may start before that.
                os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
                descriptor = os.open(path, flags, 0o666)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise TaskNotStarted(f"cannot write {name} to {path}: {reason}") from None
        os.set_blocking(descriptor, True)
        if first_task:
            whole = os.path.join(launch.cwd, path)
            sentence = "stdout and stderr go" if len(targets) == 2 else f"{name} goes"
            os.write(targets[0], f"corral: {sentence} to {whole}\n".encode("utf-8", "surrogateescape"))
        for target in targets:
            os.dup2(descriptor, target)
        os.close(descriptor)


def exec_program(launch: LaunchSpec) -> None:
    """Replace this process by the job's program (exec). Raise TaskNotStarted if that fails."""
    _enter(launch.cwd)
    program = _find(launch.argv[0], launch.env)
    try:
        os.execve(program, launch.argv, launch.env)  # noqa: S606 - no shell is the point
    except (OSError, ValueError) as error:
        raise TaskNotStarted(_why(program, error)) from None


def _enter(folder: str) -> None:
    try:
        os.chdir(folder)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise TaskNotStarted(f"cannot enter the working directory {folder}: {reason}") from None


def _make(folder: str) -> None:
    try:
        if folder:
            os.makedirs(folder, exist_ok=True)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise TaskNotStarted(f"cannot make the checkpoint directory {folder}: {reason}") from None


def _find(program: str, env: dict[str, str]) -> str:
    """Return `program` if it has a slash. If not, return its path from the job's PATH; relative directories
    in PATH begin at the working directory. Raise TaskNotStarted if the program is not found.
    """
    if "/" in program:
        return program
    for folder in env.get("PATH", "").split(":"):
        candidate = f"{folder or '.'}/{program}"
        try:
            if os.access(candidate, os.X_OK) and not os.path.isdir(candidate):
                return candidate
        except ValueError:
            break
    other = f" ({program}3 is there)" if program == "python" and _is_there("python3", env) else ""
    raise TaskNotStarted(
        f"cannot run {program}: not found in PATH ({env.get('PATH', '')}){other}. Activate the environment "
        "that has it before you submit, pass your PATH with --env PATH, or give the program's full path"
    )


def _is_there(program: str, env: dict[str, str]) -> bool:
    try:
        return bool(_find(program, env))
    except TaskNotStarted:
        return False


def _why(program: str, error: OSError | ValueError) -> str:
    if not isinstance(error, OSError):
        return f"cannot run {program}: {error}"
    if error.errno == errno.ENOENT and os.path.exists(program):
        return f"cannot run {program}: the interpreter that its first line names does not exist"
    if error.errno == errno.ENOEXEC:
        return f"cannot run {program}: it is not a program; a script begins with #! and its interpreter"
    return f"cannot run {program}: {error.strerror}"
