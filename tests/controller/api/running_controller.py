"""A real controller in this process, without agents: store, engine, daemon and API on a unix socket."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from controller.api.server.app import Server, serve
from controller.commit_feed import Lagged
from controller.config import Config
from controller.core.invariants import find_violations
from controller.core.model.decision.decision import Accepted
from controller.core.model.inputs import agent_inputs
from controller.core.model.inputs.input import Input
from controller.daemon import Daemon
from controller.registry import build_pipeline
from controller.store.store import Store
from tests.controller.store.scratch import scratch
from tests.engine_harness import facts
from tests.limits import PATIENCE_S
from wire.agent.reports import AttemptStatus, Hello

Answer = tuple[int, Any]


@dataclass
class RunningController:
    """A running controller, and an HTTP client of it."""

    daemon: Daemon
    server: Server
    session: aiohttp.ClientSession

    @property
    def socket(self) -> Path:
        return self.daemon.config.socket

    async def get(self, path: str, **query: Any) -> Answer:
        return await self.ask("GET", path, params=query)

    async def post(self, path: str, body: Any = None, **query: Any) -> Answer:
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        return await self.ask("POST", path, data=data, params=query)

    async def ask(self, method: str, path: str, **more: Any) -> Answer:
        async with self.session.request(method, f"http://corral{path}", **more) as response:
            return response.status, json.loads(await response.read())

    async def submit(self, *command: str, **more: Any) -> int:
        """Submit a job that is accepted, and return its id."""
        key = more.pop("key", "")
        status, answer = await self.post(
            "/v1/jobs", {"spec": {"command": command or ["true"], **more}, "key": key}
        )
        assert status == 201, answer
        job: int = answer["ids"][0]
        return job

    async def handle(self, given: Input) -> None:
        """Hand the engine an input that does not come from the API."""
        assert isinstance(await self.daemon.ask(given), Accepted)

    async def join(self, name: str, **host: Any) -> None:
        """Connects an agent."""
        await self.handle(
            agent_inputs.AgentSaidHello(name, Hello(name, "0.1.0", "boot", "i", facts(name, **host)))
        )

    async def placed(self, job: int) -> list[str]:
        """Wait until the job is placed, and return the names of its nodes."""
        await self.until(lambda: bool(self.daemon.state.jobs[job].members))
        return list(self.daemon.state.jobs[job].members)

    async def until(self, true: Callable[[], bool]) -> None:
        """Wait until the condition is true after a commit. Fail after `PATIENCE_S` seconds."""
        async with asyncio.timeout(PATIENCE_S):
            while not true():
                subscription = self.daemon.subscribe()
                with suppress(Lagged):
                    await anext(subscription)
                subscription.close()

    async def started(self, job: int) -> None:
        """Let the agents report that the processes of the job run."""
        for node in await self.placed(job):
            attempt = self.daemon.state.jobs[job].attempt
            await self.handle(
                agent_inputs.AgentReported(node, AttemptStatus(job, attempt, pid=100, started_at=1.0))
            )

    async def ended(self, job: int, code: int = 0) -> None:
        """Let the agents report that the processes have run and ended."""
        for node in await self.placed(job):
            attempt = self.daemon.state.jobs[job].attempt
            status = AttemptStatus(job, attempt, 100, started_at=1.0, ended_at=2.0, code=code)
            await self.handle(agent_inputs.AgentReported(node, status))


@asynccontextmanager
async def start_controller(
    directory: Path | None = None, *, bugs: bool = False, **sections: Any
) -> AsyncIterator[RunningController]:
    """A running controller; `sections` are tables of scheduler.toml, `bugs`: a test has put bugs into it."""
    with scratch() as fresh:
        home = directory or fresh
        os.chmod(home, 0o755)
        controller = {
            "state_dir": str(home),
            "socket": str(home / "c.sock"),
            **sections.pop("controller", {}),
        }
        # Because a busy machine must not decide how much of an answer is known.
        questions = {"budget_s": 60.0, "longest_s": 120.0, **sections.pop("questions", {})}
        config = Config(controller=controller, questions=questions, **sections)  # type: ignore[arg-type]
        store = Store.open(config.store_url, keep=config.controller.keep_ended)
        daemon = Daemon(config, build_pipeline(config), store)
        async with AsyncExitStack() as undo:
            undo.push_async_callback(daemon.close)
            server = await serve(daemon)
            undo.push_async_callback(server.close)
            landing = asyncio.create_task(daemon.run())
            undo.push_async_callback(lambda: landing)
            undo.callback(daemon.stop)
            connector = aiohttp.UnixConnector(str(config.socket))
            async with aiohttp.ClientSession(connector=connector) as session:
                yield RunningController(daemon, server, session)
            assert find_violations(daemon.state) == []
            assert bugs or not daemon.quarantine.crashes, "something was set aside"
