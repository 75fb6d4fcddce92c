"""The contract of every execution engine. The systems behind the engines are real."""

from __future__ import annotations

import asyncio
import getpass
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from controller.engines.contract import ExecutionEngine, ForeignJob, ForeignState, Outcome, Task
from controller.engines.tags import Tag
from tests.controller.engines.engine_setups import ENGINE_SETUPS, EngineSetup
from tests.controller.engines.fake_engine import STORE
from wire.agent.orders import Start

T = TypeVar("T")
PATIENCE_S = 120.0


@pytest.fixture(params=ENGINE_SETUPS)
async def setup(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[EngineSetup]:
    made = ENGINE_SETUPS[request.param](tmp_path)
    await made.begin()
    try:
        yield made
    finally:
        await made.end()


@pytest.fixture
async def engine(setup: EngineSetup) -> AsyncIterator[ExecutionEngine]:
    made = setup.engine()
    yield made
    for each in (await made.look()).jobs:
        await made.end(each.ref, 0.0)
        await made.end(each.ref, 0.0)
        await made.forget(each.ref, each.tag)
    await made.close()


def tag(job: int, attempt: int = 1) -> str:
    return str(Tag(STORE[:12], job, attempt, 0))


async def task(setup: EngineSetup, engine: ExecutionEngine, job: int, *command: str, **more: object) -> Task:
    order = Start(job, 1, command, getpass.getuser(), 1_000, 64, image=setup.image, **more)  # type: ignore[arg-type]
    return Task((await engine.look()).nodes[0].name, order)


async def until(look: Callable[[], Awaitable[T | None]]) -> T:
    async with asyncio.timeout(PATIENCE_S):
        while (found := await look()) is None:
            await asyncio.sleep(0.05)
        return found


async def ended(engine: ExecutionEngine, ref: str, text: str) -> Outcome:
    """Wait for the proof of the end."""
    return await until(lambda: engine.proof(ref, text))


async def in_state(engine: ExecutionEngine, ref: str, state: ForeignState) -> ForeignJob:
    async def found() -> ForeignJob | None:
        jobs = (await engine.look()).jobs
        return next((each for each in jobs if each.ref == ref and each.state is state), None)

    return await until(found)


async def test_look_is_complete_and_lists_nodes(engine: ExecutionEngine) -> None:
    seen = await engine.look()
    assert seen.complete
    assert seen.jobs == ()
    assert seen.nodes
    assert all(each.facts.cpu_milli > 0 and each.facts.memory_mib > 0 for each in seen.nodes)


@pytest.mark.parametrize("code", [0, 3])
async def test_exit_codes_are_proven(setup: EngineSetup, engine: ExecutionEngine, code: int) -> None:
    made = await task(setup, engine, 1, "sh", "-c", f"exit {code}")
    ref = await engine.ask(made, tag(1), again=False)
    assert (await ended(engine, ref, tag(1))).code == code
    await in_state(engine, ref, ForeignState.ENDED)
    assert (await engine.proof(ref, tag(1))) == (await engine.proof(ref, tag(1)))


async def test_a_running_job_has_no_proof(setup: EngineSetup, engine: ExecutionEngine) -> None:
    made = await task(setup, engine, 1, "sleep", "300")
    ref = await engine.ask(made, tag(1), again=False)
    found = await in_state(engine, ref, ForeignState.RUNNING)
    assert found.tag == tag(1)
    assert await engine.proof(ref, tag(1)) is None


async def test_two_asks_with_one_tag_make_one_job(
    setup: EngineSetup, engine: ExecutionEngine, tmp_path: Path
) -> None:
    made = await task(setup, engine, 1, "sleep", "300")
    refs = [await engine.ask(made, tag(1), again=again) for again in (False, True)]
    other = setup.engine()
    refs.append(await other.ask(made, tag(1), again=True))
    await other.close()
    assert len(set(refs)) == 1
    await in_state(engine, refs[0], ForeignState.RUNNING)
    assert [each.tag for each in (await engine.look()).jobs] == [tag(1)]


async def test_an_ask_after_the_end_does_not_run_the_job_again(
    setup: EngineSetup, engine: ExecutionEngine
) -> None:
    made = await task(setup, engine, 1, "sh", "-c", "exit 4")
    ref = await engine.ask(made, tag(1), again=False)
    await ended(engine, ref, tag(1))
    assert await engine.ask(made, tag(1), again=True) == ref
    assert (await ended(engine, ref, tag(1))).code == 4


async def test_an_ended_job_is_proven(setup: EngineSetup, engine: ExecutionEngine) -> None:
    made = await task(setup, engine, 1, "sleep", "300")
    ref = await engine.ask(made, tag(1), again=False)
    await in_state(engine, ref, ForeignState.RUNNING)

    async def repeated() -> Outcome | None:
        await engine.end(ref, 1.0)
        return await engine.proof(ref, tag(1))

    outcome = await until(repeated)
    assert (outcome.code or 0, outcome.signal or 0) != (0, 0)
    await engine.end(ref, 0.0)  # no error after the end


async def test_a_job_that_ignores_sigterm_is_killed(setup: EngineSetup, engine: ExecutionEngine) -> None:
    made = await task(setup, engine, 1, "sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1; done")
    ref = await engine.ask(made, tag(1), again=False)
    await in_state(engine, ref, ForeignState.RUNNING)

    async def repeated() -> Outcome | None:
        await engine.end(ref, 0.5)
        return await engine.proof(ref, tag(1))

    assert (await until(repeated)).code != 0


async def test_a_forgotten_job_is_gone(setup: EngineSetup, engine: ExecutionEngine) -> None:
    made = await task(setup, engine, 1, "true")
    ref = await engine.ask(made, tag(1), again=False)
    await ended(engine, ref, tag(1))
    await engine.forget(ref, tag(1))
    assert (await engine.look()).jobs == ()
    await engine.forget(ref, tag(1))  # no error
    assert await engine.proof(ref, tag(1)) is None


async def test_a_new_engine_finds_all_jobs(setup: EngineSetup, engine: ExecutionEngine) -> None:
    """As after a restart of the controller."""
    refs = {
        await engine.ask(await task(setup, engine, job, "sleep", "300"), tag(job), again=False)
        for job in (1, 2, 3)
    }
    other = setup.engine()
    assert {each.ref for each in (await other.look()).jobs} == refs
    await other.close()


async def test_output_is_read_from_its_first_byte(setup: EngineSetup, engine: ExecutionEngine) -> None:
    if not engine.caps.logs:
        pytest.skip("the engine does not give the output of jobs")
    made = await task(setup, engine, 1, "sh", "-c", "printf 'a\\nb'; printf err >&2")
    ref = await engine.ask(made, tag(1), again=False)
    await ended(engine, ref, tag(1))
    texts = (b"a\nberr", b"") if setup.merged_output else (b"a\nb", b"err")
    for stream, text in zip(("stdout", "stderr"), texts, strict=True):
        assert b"".join([piece async for piece in engine.logs(ref, stream, follow=False)]) == text


async def test_followed_output_ends_with_the_job(setup: EngineSetup, engine: ExecutionEngine) -> None:
    if not engine.caps.logs:
        pytest.skip("the engine does not give the output of jobs")
    made = await task(setup, engine, 1, "sh", "-c", "echo one; sleep 2; echo two")
    ref = await engine.ask(made, tag(1), again=False)
    async with asyncio.timeout(PATIENCE_S):
        text = b"".join([piece async for piece in engine.logs(ref, "stdout", follow=True)])
    assert text == b"one\ntwo\n"


async def test_environment_and_user_are_those_of_the_order(
    setup: EngineSetup, engine: ExecutionEngine
) -> None:
    made = await task(setup, engine, 1, "sh", "-c", 'test "$WORD" = "a b"', env={"WORD": "a b"})
    ref = await engine.ask(made, tag(1), again=False)
    assert (await ended(engine, ref, tag(1))).code == 0


async def test_script_is_pure_and_names_the_command(setup: EngineSetup, engine: ExecutionEngine) -> None:
    made = await task(setup, engine, 1, "printf", "hello")
    assert engine.script(made, tag(1)) == engine.script(made, tag(1))
    assert "printf" in engine.script(made, tag(1))
    assert (await engine.look()).jobs == ()


async def test_limits_and_offers_are_answered(engine: ExecutionEngine) -> None:
    assert all(each.limit >= 0 for each in await engine.limits())
