"""salloc: gets an allocation, and runs a command or a shell with the variables of the job."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from cli.slurm.arguments import COMMON, Option, Value, parse, prints_only_help, switch
from cli.slurm.programs import SlurmError
from cli.slurm.submit.allocation import Allocation
from cli.spec.sbatch.options import JOB_OPTIONS

_OWN = (
    Option("bell"),
    Option("immediate", "I", Value.OPTIONAL),
    Option("kill-command", "K", Value.OPTIONAL),
    switch("no-bell"),
    switch("no-shell"),
    switch("quiet", "Q", "Print only errors."),
    switch("verbose", "v"),
    Option("wait-all-nodes"),
)
OPTIONS = (*JOB_OPTIONS, *_OWN, *COMMON)
USAGE = "salloc [OPTIONS] [command [args...]]"


def main(words: list[str]) -> int:
    """Get an allocation, run a command on this host, and end the allocation. Return the exit code of the
    command.
    """
    arguments = parse(OPTIONS, words, intersperse=False)
    if prints_only_help(arguments, USAGE, OPTIONS):
        return 0
    if arguments.has("no-shell"):
        raise SlurmError(
            "Corral ends the allocation with the command. Use 'sbatch --wrap \"sleep infinity\"'."
        )
    own = {option.name for option in _OWN}
    options = tuple(pair for pair in arguments.options if pair[0] not in own)
    environment = dict(os.environ)
    command = arguments.words or [environment.get("SHELL") or "/bin/sh"]
    quiet = arguments.has("quiet")
    with Allocation("salloc", options, "interactive", environment, quiet=quiet) as allocation:
        if not quiet:
            print(f"salloc: Granted job allocation {allocation.job}", file=sys.stderr, flush=True)
        allocation.code = _run(command, {**environment, **allocation.variables})
        if not quiet:
            print(f"salloc: Relinquishing job allocation {allocation.job}", file=sys.stderr, flush=True)
    return allocation.code


def _run(command: list[str], environment: dict[str, str]) -> int:
    # Ignore Ctrl-C in salloc, because it is meant for the command that salloc runs. salloc must continue in
    # order to end the allocation.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        process = subprocess.Popen(
            command, env=environment, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL) and None
        )
        code = process.wait()
    except OSError as error:
        print(f"salloc: error: {command[0]}: {error.strerror}", file=sys.stderr)
        return 1
    finally:
        signal.signal(signal.SIGINT, before)
    return 128 - code if code < 0 else code
