"""Jobs in an HTTP function: lost, late and doubled events, refusals, limits, stops and logs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from controller.engines.contract import (
    AskRefused,
    EngineScope,
    EngineUnavailable,
    ForeignJob,
    ForeignState,
    Outcome,
    Task,
)
from controller.engines.serverless.http_function import HttpFunctionType
from controller.engines.serverless.job_objects import outcome_of
from controller.engines.serverless.serverless_engine import ServerlessEngine
from controller.engines.tags import Tag, prefix_of
from tests.controller.engines.fake_engine import STORE
from tests.controller.engines.serverless.function_server import (
    TOKEN,
    FunctionRequest,
    FunctionServer,
    handler,
)
from tests.controller.engines.serverless.object_server import BUCKET, KEY, ObjectServer
from tests.limits import PATIENCE_S
from wire.agent.orders import GpuHold, Start

T = TypeVar("T")
TAG = str(Tag(STORE[:12], 1, 1, 0))


class Rig:
    """An engine with its storage and its function."""

    def __init__(self, place: Path) -> None:
        self.place, self.storage, self.function = place, ObjectServer(), FunctionServer()
        self.engines: list[ServerlessEngine] = []
        self.ran = place / "ran"

    async def start(self) -> None:
        await self.storage.start()
        await self.function.start()
        (self.place / "token").write_text(TOKEN + "\n")
        (self.place / "token").chmod(0o600)

    async def stop(self) -> None:
        for each in self.engines:
            await each.close()
        await self.function.stop()
        await self.storage.stop()

    def options(self, **more: object) -> HttpFunctionType:
        given: dict[str, object] = {
            "bucket": BUCKET,
            "users": ("*",),
            "storage_endpoint": self.storage.address,
            "url": self.function.address,
            "token_file": str(self.place / "token"),
            "repeat_s": 0.1,
            "poll_s": 0.1,
            **more,
        }
        return HttpFunctionType(**given)  # type: ignore[arg-type]

    def engine(self, **more: object) -> ServerlessEngine:
        made = self.options(**more).connect(EngineScope("fn", prefix_of(STORE), str(self.place)))
        self.engines.append(made)
        return made

    def task(self, *command: str, **more: object) -> Task:
        given = command or ("sh", "-c", f"echo ran >> {self.ran}; exit 3")
        return Task("function", Start(1, 1, given, "ada", 1_000, 64, **more))  # type: ignore[arg-type]

    def request(self, event: dict[str, object] | None = None) -> FunctionRequest:
        """Return the first request to the function once more, or one with another event."""
        body = json.dumps(event).encode() if event else self.function.events[0]
        return FunctionRequest({"Authorization": f"Bearer {TOKEN}"}, body)

    async def once(self) -> None:
        """Check that the command has run once, after all calls have ended."""
        await self.function.idle()
        assert self.ran.read_text() == "ran\n"


@pytest.fixture
async def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Rig]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY.key_id)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEY.secret)
    monkeypatch.setenv("CORRAL_TOKEN", TOKEN)
    made = Rig(tmp_path)
    await made.start()
    yield made
    await made.stop()


async def until(look: Callable[[], Awaitable[T | None]]) -> T:
    async with asyncio.timeout(PATIENCE_S):
        while (found := await look()) is None:
            await asyncio.sleep(0.02)
        return found


async def ended(engine: ServerlessEngine, tag: str = TAG) -> Outcome:
    return await until(lambda: engine.proof(tag, tag))


async def listed(engine: ServerlessEngine) -> ForeignJob:
    [job] = (await engine.look()).jobs
    return job


async def in_state(engine: ServerlessEngine, state: ForeignState) -> ForeignJob:
    async def found() -> ForeignJob | None:
        return next((each for each in (await engine.look()).jobs if each.state is state), None)

    return await until(found)


async def asked_until_ended(engine: ServerlessEngine, task: Task) -> Outcome:
    """Ask, and ask again whenever the engine wants it, as the driver does."""
    await engine.ask(task, TAG, again=False)

    async def proven() -> Outcome | None:
        if (await listed(engine)).ask_again:
            await engine.ask(task, TAG, again=True)
        return await engine.proof(TAG, TAG)

    return await until(proven)


# --- events ---


async def test_a_doubled_event_runs_the_command_once(rig: Rig) -> None:
    rig.function.double = 1
    assert (await asked_until_ended(rig.engine(repeat_s=60.0), rig.task())).code == 3
    await rig.once()
    assert {each["ran"] for each in rig.function.answers} == {True, False}


async def test_a_lost_event_is_repeated(rig: Rig) -> None:
    rig.function.lose = 2
    assert (await asked_until_ended(rig.engine(), rig.task())).code == 3
    assert len(rig.function.events) >= 3
    await rig.once()


async def test_late_events_and_their_repetitions_run_the_command_once(rig: Rig) -> None:
    rig.function.late_s = 0.7
    assert (await asked_until_ended(rig.engine(), rig.task())).code == 3
    assert len(rig.function.events) >= 2
    await rig.once()


async def test_an_event_after_the_job_is_forgotten_does_not_run_the_command(rig: Rig) -> None:
    engine = rig.engine()
    await asked_until_ended(engine, rig.task())
    await engine.forget(TAG, TAG)
    assert (await engine.look()).jobs == ()
    rig.function.call(rig.request())
    await rig.once()


async def test_an_event_that_is_too_late_does_not_run_the_command(rig: Rig) -> None:
    """Even if the claim of the job was deleted meanwhile, and the clock of the function is wrong."""
    engine = rig.engine(late_s=1.0)
    await asked_until_ended(engine, rig.task())
    await engine.forget(TAG, TAG)
    rig.storage.objects.clear()
    await asyncio.sleep(1.5)
    event = json.loads(rig.function.events[0])
    for until_then in (event["until"], event["until"] + 3_600):
        rig.function.call(rig.request({**event, "until": until_then}))
    await rig.once()
    assert rig.storage.keys() == []


async def test_a_claim_whose_answer_was_lost_is_kept(rig: Rig) -> None:
    rig.storage.lost_answers = 1
    assert (await asked_until_ended(rig.engine(repeat_s=60.0), rig.task())).code == 3
    await rig.once()


async def test_a_storage_that_fails_for_a_moment_loses_no_result(rig: Rig) -> None:
    engine = rig.engine(repeat_s=60.0)
    go = rig.place / "go"
    command = ("sh", "-c", f"while [ ! -e {go} ]; do sleep 0.05; done; exit 3")
    await engine.ask(rig.task(*command), TAG, again=False)
    await in_state(engine, ForeignState.RUNNING)
    rig.storage.fails = 4
    with pytest.raises(EngineUnavailable, match="503"):
        await engine.end(TAG, 1.0)
    go.touch()
    assert (await ended(engine)).code == 3
    assert rig.storage.fails == 0


async def test_a_call_that_ends_without_a_result_counts_as_ended(rig: Rig) -> None:
    """The platform ends a call at its time limit. Nothing runs the command again."""
    engine = rig.engine(repeat_s=60.0)
    await asked_until_ended(engine, rig.task())
    for key in rig.storage.keys("/result"):
        del rig.storage.objects[key]
    assert (await listed(engine)).state is ForeignState.RUNNING
    rig.storage.age("/started", 1_000)
    assert (await listed(engine)).state is ForeignState.ENDED
    assert await engine.proof(TAG, TAG) is None
    rig.storage.age("claims/", 1_000)
    assert await engine.ask(rig.task(), TAG, again=True) == TAG
    outcome = await ended(engine)
    assert outcome.why.startswith("supervisor_lost: ")
    await rig.once()


async def test_old_claims_are_deleted_and_others_are_kept(rig: Rig) -> None:
    engine = rig.engine(late_s=60.0)
    await asked_until_ended(engine, rig.task())
    await engine.forget(TAG, TAG)
    assert len(rig.storage.keys("claims/")) == 1
    rig.storage.age("claims/", 10_000)
    other = rig.engine(late_s=60.0)
    await other.forget("corral-x", "corral-x")
    assert rig.storage.keys("claims/") == []


# --- refusals ---


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"cpu_milli": 2_000}, "2 CPUs, and a call of the function has 1"),
        ({"memory_mib": 2_000}, "2000 MiB of memory, and a call of the function has 1024"),
        ({"time_limit_s": 900.0}, "at most 890 s"),
        ({"gpus": (GpuHold("GPU-1", 1_000),)}, "functions have no GPUs"),
        ({"env": {"LONG": "x" * 300_000}}, "accept at most 262144"),
        ({"user": "eve"}, "eve may not run there"),
    ],
)
async def test_jobs_beyond_the_limits_are_refused(rig: Rig, change: dict[str, object], words: str) -> None:
    task = rig.task()
    engine = rig.engine(users=("ada",))
    with pytest.raises(AskRefused, match=words) as refused:
        await engine.ask(replace(task, order=replace(task.order, **change)), TAG, again=False)  # type: ignore[arg-type]
    assert refused.value.lasting
    assert rig.function.events == []
    assert (await engine.look()).jobs == ()


async def test_calls_beyond_the_concurrency_wait(rig: Rig) -> None:
    engine = rig.engine(concurrency=1, repeat_s=60.0)
    await engine.ask(rig.task("sleep", "60"), TAG, again=False)
    with pytest.raises(AskRefused, match="all 1 calls") as refused:
        await engine.ask(rig.task(), TAG.replace("-1-1-0", "-2-1-0"), again=False)
    assert not refused.value.lasting
    assert [each.used for each in await engine.limits()] == [1]
    await in_state(engine, ForeignState.RUNNING)
    await engine.end(TAG, 0.0)
    assert (await ended(engine)).signal is not None


@pytest.mark.parametrize("status", [401, 429])
async def test_a_platform_that_refuses_the_first_event_starts_nothing(rig: Rig, status: int) -> None:
    rig.function.status = status
    engine = rig.engine()
    with pytest.raises(AskRefused, match=str(status)) as refused:
        await engine.ask(rig.task(), TAG, again=False)
    assert not refused.value.lasting
    assert (await engine.look()).jobs == ()
    rig.function.status = 0
    await engine.ask(rig.task(), TAG, again=True)
    assert (await ended(engine)).code == 3
    await rig.once()


async def test_a_refused_repetition_keeps_the_job(rig: Rig) -> None:
    """An earlier event may still start the job, so it must not start elsewhere."""
    rig.function.lose = 1
    engine = rig.engine()
    await engine.ask(rig.task(), TAG, again=False)
    rig.function.status = 429
    assert await engine.ask(rig.task(), TAG, again=True) == TAG
    assert "429" in (await listed(engine)).reason
    smaller = rig.engine(memory_mib=32)
    with pytest.raises(AskRefused, match="64 MiB"):
        await smaller.ask(rig.task(), TAG, again=True)
    rig.function.status = 0
    rig.function.call(rig.request())
    await rig.function.idle()
    assert not rig.ran.exists()


async def test_a_call_that_crashes_shows_its_reason_and_is_repeated(rig: Rig) -> None:
    rig.function.fail = True
    engine = rig.engine()
    with pytest.raises(EngineUnavailable, match="500: the function has crashed"):
        await engine.ask(rig.task(), TAG, again=False)
    rig.function.fail = False
    await asyncio.sleep(0.2)
    assert (await listed(engine)).ask_again
    await engine.ask(rig.task(), TAG, again=True)
    assert (await ended(engine)).code == 3


async def test_requests_without_the_token_are_refused_by_the_handler(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(AskRefused, match="does not bear the token"):
        await rig.engine(token_file="").ask(rig.task(), TAG, again=False)
    monkeypatch.delenv("CORRAL_TOKEN")
    with pytest.raises(AskRefused, match="has no CORRAL_TOKEN"):
        await rig.engine().ask(rig.task(), TAG, again=False)
    assert not rig.ran.exists()


async def test_a_storage_without_conditional_writes_is_refused(rig: Rig) -> None:
    rig.storage.conditional = False
    with pytest.raises(EngineUnavailable, match="could run twice"):
        await rig.engine().look()


async def test_a_wrong_key_is_shown(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "other")
    with pytest.raises(EngineUnavailable, match="SignatureDoesNotMatch"):
        await rig.engine().look()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"url": "ftp://x"}, "not the address"),
        ({"url": "http://functions.example/"}, "use https"),
        ({"users": ()}, "users: name"),
        ({"bucket": "A"}, "not the name of a bucket"),
        ({"prefix": "../"}, "prefix: '../'"),
        ({"longest_s": 20.0}, "longest_s"),
        ({"concurrency": 0}, "concurrency"),
    ],
)
def test_wrong_options_are_refused(change: dict[str, object], words: str) -> None:
    given: dict[str, object] = {"bucket": BUCKET, "users": ("*",), "url": "https://f.example", **change}
    with pytest.raises(ValueError, match=words):
        HttpFunctionType(**given)  # type: ignore[arg-type]


# --- stops, limits and output ---


async def test_a_job_that_is_ended_before_its_event_arrives_never_runs(rig: Rig) -> None:
    rig.function.lose = 1
    engine = rig.engine()
    await engine.ask(rig.task(), TAG, again=False)
    await engine.end(TAG, 1.0)
    await engine.end(TAG, 1.0)
    assert (await listed(engine)).state is ForeignState.ENDED
    assert await engine.proof(TAG, TAG) == Outcome(signal=15)
    rig.function.call(rig.request())
    await rig.function.idle()
    assert not rig.ran.exists()


async def test_an_end_of_an_unknown_job_writes_nothing(rig: Rig) -> None:
    await rig.engine().end(TAG, 1.0)
    assert rig.storage.keys() == []


@pytest.mark.parametrize(("trap", "outcome"), [("exit 0", (0, None)), ("", (None, 9))])
async def test_the_time_limit_ends_all_processes(
    rig: Rig, trap: str, outcome: tuple[int | None, int | None]
) -> None:
    """A program that ends at SIGTERM has its own exit code. One that does not is killed."""
    engine = rig.engine(repeat_s=60.0)
    command = ("sh", "-c", f"trap '{trap}' TERM; sleep 300 & while :; do sleep 0.05; done")
    await engine.ask(rig.task(*command, time_limit_s=0.3, grace_s=0.3), TAG, again=False)
    found = await ended(engine)
    assert (found.code, found.signal, found.why) == (*outcome, "time_limit")
    assert found.usage is not None


async def test_a_command_that_cannot_be_started_says_why(rig: Rig) -> None:
    engine = rig.engine(repeat_s=60.0)
    await engine.ask(rig.task("/no/such/program"), TAG, again=False)
    assert (await ended(engine)).why.startswith("launch_failed: ")


def test_a_function_with_a_short_timeout_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """AWS Lambda gives a new function a timeout of 3 s."""

    class Context:
        def get_remaining_time_in_millis(self) -> int:
            return 2_900

    written: dict[str, bytes] = {}
    module = handler()

    def send(method: str, url: str, body: bytes = b"", *more: object, **options: object) -> tuple[int, bytes]:
        written[url] = body
        return 200, b""

    monkeypatch.setattr(module, "send", send)
    urls = {each: each for each in ("claim", "started", "result")}
    event = {"corral": 1, "until": float("inf"), "longest_s": 900.0, "urls": urls}
    assert module.lambda_handler(event, Context()) == {"ran": True}
    assert outcome_of(written["result"]) == Outcome(
        why="launch_failed: the function ends this call after 2.9 s; set a longer timeout"
    )


async def test_output_is_bounded_and_can_be_merged(rig: Rig) -> None:
    engine = rig.engine(repeat_s=60.0, log_kib=1)
    command = ("sh", "-c", "echo no >&2; head -c 100000 /dev/zero | tr '\\0' x")
    await engine.ask(rig.task(*command, merge_output=True), TAG, again=False)
    assert (await ended(engine)).code == 0
    text = b"".join([each async for each in engine.logs(TAG, "stdout", follow=False)])
    assert text == b"no\n" + b"x" * 1_021 + b"\n[the rest of the output is not kept]\n"
    assert [each async for each in engine.logs(TAG, "stderr", follow=False)] == []


async def test_the_token_and_the_files_of_a_call_are_not_left_to_jobs(rig: Rig) -> None:
    engine = rig.engine(repeat_s=60.0)
    await engine.ask(rig.task("sh", "-c", "echo $CORRAL_TOKEN $(ls) ; pwd; touch x"), TAG, again=False)
    assert (await ended(engine)).code == 0
    [text] = [each async for each in engine.logs(TAG, "stdout", follow=False)]
    empty, place = text.decode().splitlines()
    assert empty == ""
    assert not Path(place).exists()


async def test_the_clock_of_the_storage_does_not_matter(rig: Rig) -> None:
    rig.storage.offset_s = 3_600.0
    engine = rig.engine(repeat_s=60.0)
    await engine.ask(rig.task("sleep", "60"), TAG, again=False)
    found = await in_state(engine, ForeignState.RUNNING)
    assert not found.ask_again
    await engine.end(TAG, 0.0)
    assert (await ended(engine)).signal in (9, 15)
