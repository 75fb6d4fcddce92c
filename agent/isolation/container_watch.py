"""Removes orphan containers (containers whose attempt does not run). Also detects a container engine that
starts later than the agent.

1. When the agent starts, list the docker containers with the label of this spool. Remove the containers whose
   attempt does not run. If the daemon does not answer, try again later. Containers of podman need no such
   check, because their processes have the mark of their attempt. The agent ends these processes like
   processes of other lost attempts.
2. If an engine is installed but does not work, query the engine every 30 s. When the engine answers, the
   agent exits, and the next agent reports the engine to the controller.

No step blocks the agent: each program runs in its own process, with a timeout.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Callable, Optional, Sequence

from agent.controller_channel import AgentExit
from agent.event_loop import EventLoop
from agent.isolation.container_runtimes import (
    ATTEMPT_LABEL,
    SPOOL_LABEL,
    ContainerRuntime,
    candidate_commands,
    runtime_kind,
    version_arguments,
)
from wire.agent.job_policy import JobPolicy

RETRY_S = 30.0
TIMEOUT_S = 30.0


class ContainerWatch:
    """Removes orphan containers (containers whose attempt does not run). Also detects a container engine that
    starts later than the agent. At most one command of the engine runs at a time. `running` has the names
    (such as `42.1`) of the attempts whose end the controller has not stored; containers of these attempts are
    kept.
    """

    def __init__(
        self,
        loop: EventLoop,
        runtime: Optional[ContainerRuntime],
        policy: JobPolicy,
        spool: Path,
        running: Sequence[str],
    ) -> None:
        self._loop = loop
        self._runtime = runtime
        self._policy = policy
        self._spool = spool
        self._running = set(running)

    def start(self) -> None:
        """With docker, begin to remove orphan containers. If an engine is installed but did not work when the
        agent started, begin to check at intervals whether it works.
        """
        if self._runtime is None:
            if candidate_commands(self._policy):
                self._loop.call_later(RETRY_S, self._look_for_engine)
        elif self._runtime.kind == "docker":
            self._look_for_orphans()

    def _look_for_engine(self) -> None:
        for command in candidate_commands(self._policy)[:1]:
            self._run([*command, *version_arguments(runtime_kind(command))], self._engine_answered)

    def _engine_answered(self, answer: Optional[str]) -> None:
        if answer:
            print("agent: a container engine has started to work; restarting to report it", file=sys.stderr)
            raise AgentExit
        self._loop.call_later(RETRY_S, self._look_for_engine)

    def _look_for_orphans(self) -> None:
        assert self._runtime is not None
        listing = ["ps", "--all", "--filter", f"label={SPOOL_LABEL}={self._spool}"]
        shown = ["--format", '{{.Names}} {{.Label "' + ATTEMPT_LABEL + '"}}']
        self._run([*self._runtime.command, *listing, *shown], self._orphans_found)

    def _orphans_found(self, answer: Optional[str]) -> None:
        assert self._runtime is not None
        if answer is None:
            self._loop.call_later(RETRY_S, self._look_for_orphans)
            return
        pairs = [line.split() for line in answer.splitlines()]
        names = [pair[0] for pair in pairs if len(pair) == 2 and pair[1] not in self._running]
        if names:
            print(f"agent: removes containers of ended attempts: {' '.join(names)}", file=sys.stderr)
            self._run([*self._runtime.command, "rm", "--force", *names], self._orphans_removed)

    def _orphans_removed(self, answer: Optional[str]) -> None:
        if answer is None:
            self._loop.call_later(RETRY_S, self._look_for_orphans)

    def _run(self, command: list[str], then: Callable[[Optional[str]], None]) -> None:
        """Run a command of the engine. `then` is called later with the output of the command, or with None if
        the command failed or took too long.
        """
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd="/"
            )
        except OSError:
            self._loop.call_later(RETRY_S, partial(then, None))
            return
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        _Program(self._loop, process, then)


class _Program:
    """A running command of the engine, and the output that it has written until now."""

    def __init__(
        self, loop: EventLoop, process: subprocess.Popen[bytes], then: Callable[[Optional[str]], None]
    ) -> None:
        assert process.stdout is not None
        self._loop, self._process, self._then = loop, process, then
        self._source, self._output = process.stdout, b""
        loop.on_readable(self._source.fileno(), self._read_output)
        loop.call_later(TIMEOUT_S, self._time_out)

    def _read_output(self) -> None:
        more = self._source.read()
        if more:
            self._output += more
        elif more == b"":
            self._loop.on_readable(self._source.fileno(), None)
            self._source.close()
            # Wait for the exit of the program. The wait is short, because the program has already closed its
            # output.
            failed = self._process.wait()
            self._then(None if failed else self._output.decode("utf-8", "replace"))

    def _time_out(self) -> None:
        if not self._source.closed:
            # SIGKILL ends the program and so closes its output. The event loop then calls `_read_output`.
            self._process.kill()
