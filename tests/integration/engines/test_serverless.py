"""Real controllers run jobs in real function servers, and are killed at every step of a job."""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from controller.engines.serverless.http_session import HttpSession
from controller.engines.serverless.object_store import ObjectStore
from tests.controller.engines.serverless.object_server import BUCKET
from tests.controller.engines.serverless.real_functions import KEYS, KINDS, RealFunctions
from tests.integration.engines.fault_proxy import FaultProxy, fault_proxy
from tests.integration.engines.killing_engine import END_STEPS, SEND_STEP, STEPS
from tests.systems import System
from wire.job.spec import JobSpec
from wire.names import JobState

pytestmark = [pytest.mark.slow, pytest.mark.engines]
Build = Callable[..., System]
JOBS = 100


class Functions:
    """A function server and its storage, each with a proxy before it."""

    def __init__(self, real: RealFunctions, proxy: FaultProxy, storage: FaultProxy) -> None:
        self.real, self.proxy, self.storage = real, proxy, storage

    def objects(self, part: str = "jobs/") -> list[str]:
        """Return the objects in the storage."""

        async def read() -> list[str]:
            session = HttpSession()
            store = ObjectStore(session, self.storage.address, BUCKET, "us-east-1", "")
            try:
                return [each.key for each in await store.list(f"corral/{part}")]
            finally:
                await session.close()

        return asyncio.run(read())


@pytest.fixture(scope="module", params=KINDS)
def functions(request: pytest.FixtureRequest) -> Iterator[Functions]:
    place = Path(tempfile.mkdtemp(prefix="corral-functions-"))
    real = RealFunctions(request.param, place)
    try:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in KEYS.items():
                patch.setenv(name, value)
            real.start()
            with fault_proxy(real.function) as proxy, fault_proxy(real.storage) as storage:
                yield Functions(real, proxy, storage)
    finally:
        real.stop()
        shutil.rmtree(place, ignore_errors=True)


@pytest.fixture
def controller(build: Build, functions: Functions) -> Callable[..., System]:
    """Builds a controller with an engine `fn` that is killed at `step`."""

    def make(step: str = "", repeat_s: float = 3.0) -> System:
        system = build()
        system.sections["nodes"] = {}
        system.sections["plugins"] = {"files": [str(Path(__file__).with_name("killing_engine.py"))]}
        options = functions.real.options(
            functions.proxy.address,
            storage_endpoint=functions.storage.address,
            concurrency=6,
            repeat_s=repeat_s,
            poll_s=0.3,
        )
        system.sections["engines"] = {
            "fn": {
                "type": "killing-function",
                "interval_s": 0.3,
                "options": json.dumps(options),
                "step": step,
                "once": str(system.place / "killed"),
            }
        }
        return system

    return make


def begin(system: System) -> None:
    system.launch()
    system.await_answer()
    system.await_nodes("fn-calls")


def submit(system: System, *commands: str) -> list[int]:
    specs = [
        JobSpec(
            ("sh", "-c", each), cpu_milli=1_000, memory_mib=50, selector={"engine": "fn"}, time_limit_s=60.0
        )
        for each in commands
    ]
    with system.client() as client:
        return [client.submit(each).ids[0] for each in specs]


def left_behind(system: System, functions: Functions) -> list[str]:
    """Return the objects of jobs that are not removed."""
    system.until(lambda: not functions.objects(), "the objects of the jobs are removed")
    return functions.objects()


@pytest.mark.parametrize("faults", [False, True])
def test_many_jobs(controller: Callable[..., System], functions: Functions, faults: bool) -> None:
    """Each job runs once, has its own exit code and its own log, and nothing is left behind. With faults,
    events are lost, late and doubled.
    """
    system = controller(repeat_s=2.0)
    functions.proxy.faults = faults
    functions.proxy.played.clear()
    begin(system)
    ran = system.place / "ran"
    ids = submit(system, *(f"echo {n} >> {ran}; echo log {n}; exit {n % 3}" for n in range(JOBS)))
    system.await_jobs(ids)
    functions.proxy.faults = False
    jobs = system.jobs()
    assert left_behind(system, functions) == []
    assert Counter(int(line) for line in ran.read_text().split()) == Counter(range(JOBS))
    for number, each in enumerate(ids):
        assert (jobs[each].exit_code, jobs[each].attempt) == (number % 3, 1), jobs[each]
    assert system.corral("logs", str(ids[17])) == "log 17\n"
    if faults:
        assert min(functions.proxy.played[each] for each in ("lost", "late", "doubled")) >= JOBS // 6


@pytest.mark.parametrize("step", [*STEPS, SEND_STEP])
def test_a_controller_killed_at_a_step_of_a_job(
    controller: Callable[..., System], functions: Functions, step: str
) -> None:
    """The job runs once and ends with its exit code. Nothing is left behind."""
    system = controller(step)
    begin(system)
    ran = system.place / "ran"
    [job] = submit(system, f"echo ran >> {ran}; sleep 1; exit 3")
    system.until(lambda: system.controller.poll() is not None, f"the controller is killed {step}")
    begin(system)
    system.await_jobs([job])
    ended = system.jobs()[job]
    assert (ended.exit_code, ended.attempt) == (3, 1), ended
    assert left_behind(system, functions) == []
    assert ran.read_text() == "ran\n"


@pytest.mark.parametrize("step", END_STEPS)
def test_a_controller_killed_while_a_job_is_cancelled(
    controller: Callable[..., System], functions: Functions, step: str
) -> None:
    system = controller(step)
    begin(system)
    ran = system.place / "ran"
    [job] = submit(system, f"echo ran >> {ran}; sleep 50")
    system.until(ran.exists, "the job runs")
    system.corral("cancel", str(job))
    system.until(lambda: system.controller.poll() is not None, f"the controller is killed {step}")
    begin(system)
    system.await_jobs([job])
    assert system.jobs()[job].state is JobState.CANCELLED
    assert left_behind(system, functions) == []
    assert ran.read_text() == "ran\n"
