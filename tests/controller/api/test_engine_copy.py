"""Questions to the engine copy: each in its own process, a few at a time, and users take turns."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controller import user_turns
from controller.api.handlers.jobs.reasons import FEW_WAITING
from controller.config import Config
from controller.core.engine import Engine
from controller.core.model.decision.decision import Decision
from controller.core.model.inputs import controller_inputs, job_inputs
from controller.core.model.inputs.input import Input
from controller.core.model.inputs.job_inputs import Submit
from controller.core.model.job import Job
from controller.questions.engine_copy.engine_copy import EngineCopy, QuestionRefused
from controller.registry import build_pipeline
from tests.controller.api.jobs.test_forecasts import full_house
from tests.controller.api.running_controller import RunningController, start_controller
from tests.limits import PATIENCE_S
from wire.api.forecasts import Explanation
from wire.api.reasons import Why
from wire.job.spec import JobSpec

NEVER_S = 600.0


def jobs(scene: EngineCopy) -> Iterator[int]:
    """The number of jobs."""
    yield len(scene.engine.state.jobs)


def order(scene: EngineCopy) -> Iterator[str]:
    """The name of the queue order."""
    yield type(scene.engine.pipeline.order).__name__


def place(_scene: EngineCopy) -> Iterator[tuple[set[int], int]]:
    """The cores that the process may use, and its nice value."""
    yield os.sched_getaffinity(0), os.nice(0)


def used_up(scene: EngineCopy) -> Iterator[int]:
    """Changes its copy of the engine."""
    scene.engine.handle(Submit(JobSpec(command=("true",)), "eve"), scene.now)
    yield from jobs(scene)


def halting(_scene: EngineCopy) -> Iterator[str]:
    """Yields one partial answer and then waits."""
    yield "a part of it"
    time.sleep(NEVER_S)


def killed(_scene: EngineCopy) -> Iterator[str]:
    """Ends its process without an answer."""
    os.kill(os.getpid(), signal.SIGKILL)
    yield "never"


def killing(scene: EngineCopy, mark: str) -> Iterator[int]:
    """Kills the engine copy at the first call."""
    if not Path(mark).exists():
        Path(mark).touch()
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(NEVER_S)
    yield from jobs(scene)


def greedy(_scene: EngineCopy) -> Iterator[int]:
    """Uses more memory than is allowed."""
    yield len(bytearray(4 << 30))


def noting(_scene: EngineCopy, answer: Explanation, mark: str = "") -> Iterator[Explanation]:
    """Writes its process id to a file, and never ends."""
    Path(os.environ["CORRAL_TEST_MARK"]).write_text(str(os.getpid()))
    time.sleep(NEVER_S)
    yield answer


async def asked(
    api: RunningController, work: Any, *arguments: Any, user: str = "ada", within_s: float = 60.0
) -> Any:
    return await api.daemon.questions.ask(user, work, *arguments, now=api.daemon.now, within_s=within_s)


async def gone(pid: int) -> None:
    """Wait until the process has ended."""
    async with asyncio.timeout(60):
        while Path(f"/proc/{pid}").exists():
            await asyncio.sleep(0.02)


@pytest.fixture
async def patient(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A controller without time limits for questions, which answers one question at a time."""
    monkeypatch.setattr("controller.questions.engine_copy.client.WAIT_S", PATIENCE_S)
    async with start_controller(questions={"at_once": 1, "longest_s": 60.0}) as made:
        yield made


async def test_question_sees_everything_acknowledged_before_it(patient: RunningController) -> None:
    await full_house(patient)
    for count in range(3, 7):
        job = await patient.submit(gpus=8, time_limit_s=60)
        assert await asked(patient, jobs) == count
        _, answer = await patient.get(f"/v1/jobs/{job}/explain")
        assert answer["starts_at"] is not None
        assert answer["complete"]
        assert answer["as_of"] > 0


async def test_question_does_not_change_the_engine_copy(patient: RunningController) -> None:
    await full_house(patient)
    assert [await asked(patient, used_up) for _ in range(3)] == [3, 3, 3]


async def test_engine_copy_has_lower_priority_and_leaves_a_core_to_the_controller(
    patient: RunningController,
) -> None:
    cores, niceness = await asked(patient, place)
    ours = os.sched_getaffinity(0)
    assert len(cores) == max(1, len(ours) - 1)
    assert niceness > os.nice(0)


async def test_partial_answer_is_returned_at_the_time_limit(patient: RunningController) -> None:
    assert await asked(patient, halting, within_s=0.5) == "a part of it"
    assert await asked(patient, jobs) == 0


async def test_killed_question_does_not_affect_others(patient: RunningController) -> None:
    await full_house(patient)
    assert await asked(patient, killed) is None
    before = patient.daemon.questions.copy_pid
    assert await asked(patient, jobs) == 2
    assert patient.daemon.questions.copy_pid == before


async def test_killed_engine_copy_is_started_again(patient: RunningController, tmp_path: Path) -> None:
    await full_house(patient)
    await asked(patient, jobs)
    before = patient.daemon.questions.copy_pid
    assert await asked(patient, killing, str(tmp_path / "mark")) == 2
    assert patient.daemon.questions.copy_pid not in (None, before)


async def test_an_answer_has_a_memory_limit(patient: RunningController) -> None:
    assert await asked(patient, greedy) is None
    assert await asked(patient, jobs) == 0


async def test_crash_in_the_controller_restarts_the_engine_copy_with_its_state(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with start_controller(bugs=True) as api:
        await full_house(api)
        await asked(api, jobs)
        before, handle = api.daemon.questions.copy_pid, api.daemon.engine.handle

        def broken(given: Any, now: float) -> Any:
            handled = handle(given, now)
            if isinstance(given, job_inputs.Submit):
                raise RuntimeError("after the state was changed")
            return handled

        monkeypatch.setattr(api.daemon.engine, "handle", broken)
        status, _ = await api.post("/v1/jobs", {"spec": {"command": ["true"]}, "key": ""})
        assert status == 201, "the engine was loaded from the store, and took it"
        assert await asked(api, jobs) == 3
        assert api.daemon.questions.copy_pid not in (None, before)


async def test_new_configuration_reaches_the_engine_copy_at_once(patient: RunningController) -> None:
    await full_house(patient)
    await asked(patient, jobs)
    before = patient.daemon.questions.copy_pid
    pipeline = build_pipeline(Config(scheduler={"order": "fair"}))  # type: ignore[arg-type]
    await patient.handle(controller_inputs.ApplyConfig("digest", "root", pipeline))
    assert await asked(patient, order) == "FairShareOrder"
    assert patient.daemon.questions.copy_pid != before


async def test_the_reason_of_a_job_in_a_long_queue_is_worked_out_beside_the_controller(
    patient: RunningController, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = await full_house(patient)
    here: list[int] = []
    explain = Engine.explain

    def noted(engine: Engine, job: Job, now: float) -> Why:
        here.append(job.id)
        return explain(engine, job, now)

    monkeypatch.setattr(Engine, "explain", noted)
    _, told = await patient.get(f"/v1/jobs/{waiting}")
    assert (told["why"]["position"], here) == (1, [waiting])
    await patient.submit(gpus=8, time_limit_s=60, array=f"1-{FEW_WAITING}")
    for path in (f"/v1/jobs/{waiting}", f"/v1/jobs/{waiting}/explain"):
        _, told = await patient.get(path)
        assert (told["why"]["reason"], told["why"]["position"]) == ("resources", 1)
    status, told = await patient.get(f"/v1/jobs/{waiting}/logs")
    assert (status, told["code"]) == (409, "conflict")
    assert "0 of 1 can give that now" in told["message"]
    assert here == [waiting], "a copy has looked for the reason"


async def test_the_reason_that_the_last_pass_noted_is_given_if_no_copy_can_look(
    patient: RunningController, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = await full_house(patient)
    await patient.submit(gpus=8, time_limit_s=60, array=f"1-{FEW_WAITING}")
    monkeypatch.setattr("controller.api.handlers.jobs.reasons.explain_reason", killed)
    _, told = await patient.get(f"/v1/jobs/{waiting}")
    assert (told["why"]["reason"], told["why"]["sentence"]) == (
        "resources",
        f"'corral explain {waiting}' gives details",
    )


async def test_start_estimates_are_sampled_beside_the_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    passes: list[Engine] = []
    handle = Engine.handle

    def noted(engine: Engine, given: Input, now: float) -> Decision:
        passes.append(engine)
        return handle(engine, given, now)

    monkeypatch.setattr(Engine, "handle", noted)
    async with start_controller(backfill={"score_starts_s": 0.05}) as api:
        waiting = await full_house(api)
        await api.until(lambda: bool(api.daemon.state.jobs[waiting].foreseen))
        assert {*map(id, passes)} == {id(api.daemon.engine)}
        async with asyncio.timeout(PATIENCE_S):
            while api.daemon.questions.copy_pid is not None:
                await asyncio.sleep(0.02)
        status, _ = await api.get(f"/v1/jobs/{waiting}/explain")
        assert status == 200
        kept = api.daemon.questions.copy_pid
        await api.submit(gpus=8)
        await api.until(lambda: bool(api.daemon.state.jobs[waiting + 1].foreseen))
        assert api.daemon.questions.copy_pid == kept, "a question has asked to keep it"


async def test_users_take_turns_with_questions(patient: RunningController) -> None:
    answered: list[str] = []

    async def ask(user: str) -> None:
        await asked(patient, jobs, user=user)
        answered.append(user)

    flood = [asyncio.create_task(ask("ada")) for _ in range(20)]
    await asyncio.sleep(0)  # the questions wait
    await asyncio.gather(ask("bo"), ask("cy"), *flood)
    assert {"bo", "cy"} < {*answered[:4]}


async def test_user_with_too_many_questions_is_refused(
    patient: RunningController, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_turns, "MAX_WAITING", 5)
    flood = [asyncio.create_task(asked(patient, jobs, user="ada")) for _ in range(15)]
    answer = await asyncio.gather(*flood, return_exceptions=True)
    refused = [each for each in answer if isinstance(each, QuestionRefused)]
    assert len(refused) == 15 - user_turns.MAX_WAITING - 1
    assert refused[0].refusal.code == "busy"
    assert await asked(patient, jobs, user="bo") == 0


async def test_explain_has_a_reason_although_too_many_questions_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("controller.questions.engine_copy.client.WAIT_S", 0.3)
    async with start_controller(questions={"at_once": 1, "longest_s": 60.0}) as api:
        waiting = await full_house(api)
        first = asyncio.create_task(asked(api, halting))
        await asyncio.sleep(0)
        status, answer = await api.get(f"/v1/jobs/{waiting}/explain")
        assert (status, answer["why"]["reason"], answer["complete"]) == (200, "resources", False)
        assert "this question has waited" in answer["unknown"]
        status, answer = await api.post("/v1/what-if", {"cancel": [1]})
        assert (status, answer["code"]) == (503, "busy")
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)


async def test_question_that_cannot_begin_in_time_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.questions.engine_copy.client.WAIT_S", 0.3)
    async with start_controller(questions={"at_once": 1, "longest_s": 60.0}) as api:
        first = asyncio.create_task(asked(api, halting))
        await asyncio.sleep(0)
        with pytest.raises(QuestionRefused, match=r"this question has waited for 0\.3 s"):
            await asked(api, jobs, user="bo")
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        assert await asked(api, jobs, user="bo") == 0


async def test_disconnected_client_ends_its_question(
    patient: RunningController, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "mark"
    monkeypatch.setenv("CORRAL_TEST_MARK", str(mark))
    monkeypatch.setattr("controller.api.handlers.jobs.forecasts.explain_waiting", noting)
    waiting = await full_house(patient)
    asking = asyncio.create_task(patient.get(f"/v1/jobs/{waiting}/explain", within=60))
    async with asyncio.timeout(60):
        while not mark.exists() or not mark.read_text():
            await asyncio.sleep(0.02)
    asking.cancel()
    await gone(int(mark.read_text()))
    assert await asked(patient, jobs) == 2, "its place is free again"


async def test_engine_copy_ends_with_the_controller(tmp_path: Path) -> None:
    async with start_controller(questions={"longest_s": 60.0}) as api:
        asking = asyncio.create_task(asked(api, halting))
        while api.daemon.questions.copy_pid is None:
            await asyncio.sleep(0.02)
        copy = api.daemon.questions.copy_pid
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
    await gone(copy)


async def test_time_limits_of_questions(api: RunningController) -> None:
    waiting = await full_house(api)
    for wrong in ("0", "nan", "soon", "1e9"):
        status, answer = await api.get(f"/v1/jobs/{waiting}/explain", within=wrong)
        assert (status, answer["where"]) == (400, "within")
    status, answer = await api.post("/v1/what-if", {"cancel": [1]}, within="5", part="first")
    assert (status, answer["sooner"]) == (200, 1)
