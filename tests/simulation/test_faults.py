"""The fault simulation: the engine keeps all guarantees, and every broken engine is detected."""

from __future__ import annotations

import csv
import io
import json

import pytest

from controller.config import Config
from controller.core.engine import Engine
from controller.core.model.events.kinds import body_of
from controller.sim.generate.random_numbers import RandomStream
from controller.sim.replay.replay_clock import Clock
from tests.examples import examples
from tests.simulation import broken_engines as broken
from tests.simulation import parallel_seeds
from tests.simulation.__main__ import PROGRAM, run
from tests.simulation.controller import SimulatedController
from tests.simulation.fault_injection import FAULT_KINDS
from tests.simulation.flaky_link import SILENCE_S, Direction, FlakyLink, Frame
from tests.simulation.parallel_seeds import run_seeds
from tests.simulation.trial import FaultTrial
from tests.simulation.trial_plan import TrialPlan
from tests.simulation.trial_report import Verdict, run_seed
from wire.agent.orders import Settle
from wire.agent.reports import Hello, NodeFacts

PLAN = TrialPlan()


def test_the_engine_keeps_all_guarantees() -> None:
    seeds = range(1, examples(60) + 1)
    verdicts = run_seeds(PLAN, seeds, lambda _done: None)
    assert [verdict.failure for verdict in verdicts] == [None] * len(seeds)
    assert [verdict.seed for verdict in verdicts] == [*seeds]
    struck = sum((verdict.troubles for verdict in verdicts), start=verdicts[0].troubles)
    assert struck.keys() == FAULT_KINDS.keys()


def test_the_engine_keeps_all_guarantees_for_services() -> None:
    web = {"user": "ada", "command": ["serve"], "gpus": 1, "replicas": 3, "health": {"command": ["true"]}}
    api = {"user": "bo", "command": ["serve"], "gpus": 2, "replicas": 2, "max_unavailable": 0}
    config = Config.model_validate({"services": {"web": web, "api": api}})
    seeds = range(1, examples(30) + 1)
    verdicts = run_seeds(TrialPlan(config=config), seeds, lambda _done: None)
    assert [verdict.failure for verdict in verdicts] == [None] * len(seeds)


@pytest.mark.parametrize(
    ("engine", "guarantees"),
    [
        (broken.RunsTwice, "235"),
        (broken.RunsAgain, "23"),
        (broken.RepeatsSuccess, "3"),
        (broken.NeverSendsAgain, "1"),
        (broken.FreesTooEarly, "257"),
        (broken.TakesMoreThanThereIs, "5"),
        (broken.CancelWins, "7"),
        (broken.ForgetsKeys, "1"),
        (broken.NeverSettles, "6"),
        (broken.ForgetsStops, "1s"),
        (broken.LetsGangsRun, "s"),
        (broken.NeverLeaves, "1s"),
        (broken.IgnoresLeases, "2"),
        (broken.LendsTooMuch, "5"),
        (broken.OversleepsItsMoments, "1"),
        (broken.StartsHeldJobs, "c"),
        (broken.SaysLessThanItDoes, "9"),
    ],
)
def test_a_broken_engine_is_detected(engine: type[Engine], guarantees: str) -> None:
    verdict = _first_failure(engine, SimulatedController)
    assert verdict.failure is not None
    assert verdict.failure.promise[0] in guarantees, verdict.failure


@pytest.mark.parametrize(
    ("controller", "guarantees"),
    [(broken.AnswersFirst, "1"), (broken.OrdersFirst, "1235679"), (broken.ForgetsItsNumbers, "19c")],
)
def test_a_broken_controller_is_detected(controller: type[SimulatedController], guarantees: str) -> None:
    verdict = _first_failure(Engine, controller)
    assert verdict.failure is not None
    assert verdict.failure.promise[0] in guarantees, verdict.failure


SHOWN_BY: dict[type[Engine], int] = {
    broken.NeverLeaves: 33,
    broken.IgnoresLeases: 24,
    broken.OversleepsItsMoments: 20,
}
"""The seed that shows a fault which few seeds show. It is tried first, and all seeds after it."""


def _first_failure(engine: type[Engine], controller: type[SimulatedController]) -> Verdict:
    for seed in (SHOWN_BY.get(engine, 1), *range(1, 61)):
        verdict = run_seed(PLAN, seed, engine, controller)
        if verdict.failure is not None:
            return verdict
    return verdict


def test_the_same_seed_gives_the_same_journal() -> None:
    def journal(seed: int) -> list[str]:
        trial = FaultTrial(PLAN, seed)
        trial.run()
        return [body_of(event) for event in trial.controller.store.journal]

    assert journal(3) == journal(3)
    assert journal(3) != journal(4)


def test_a_failing_seed_is_printed_with_the_command_that_repeats_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(parallel_seeds, "run_seed", lambda plan, seed: run_seed(plan, seed, broken.RunsTwice))
    assert run(["--seeds", "7", "--hours", "3", "--jobs", "30"]) == 1
    out = capsys.readouterr().out
    command = f"{PROGRAM} --seeds 7 --hours 3 --nodes 4 --jobs 30"
    assert "seeds         1, 1 of them failed" in out
    assert "seed 7 broke a guarantee: " in out
    assert f"Repeat it with: {command}\n" in out
    assert "AttemptStarted job=" in out
    assert run([*command.split()[3:], "-o", "json"]) == 1
    (failure,) = json.loads(capsys.readouterr().out)["failures"]
    assert failure["command"] == command
    assert failure["how"] in out
    assert run([*command.split()[3:], "-o", "csv"]) == 1
    (row,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert (row["seed"], row["broken"]) == ("7", failure["promise"])


def test_seeds_that_cannot_be_parsed_and_missing_policies_are_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["--seeds", "all"]) == 2
    assert "--seeds: cannot read 'all'" in capsys.readouterr().err
    assert run(["--config", "/nowhere/scheduler.toml"]) == 2
    assert "/nowhere/scheduler.toml: there is no such file" in capsys.readouterr().err


def test_single_policy_can_be_tried(tmp_path: object, capsys: pytest.CaptureFixture[str]) -> None:
    path = f"{tmp_path}/scheduler.toml"
    with open(path, "w", encoding="utf-8") as file:
        file.write('[scheduler]\norder = "fifo"\nbackfill = "none"\n')
    assert run(["--seeds", "1-3", "--hours", "1", "--config", path, "-o", "json"]) == 0
    body = json.loads(capsys.readouterr().out)
    assert (body["seeds"], body["failures"]) == (3, [])
    assert run(["--seeds", "1-3", "--hours", "1", "--config", path, "-o", "csv"]) == 0
    rows = [*csv.DictReader(io.StringIO(capsys.readouterr().out))]
    assert [(row["seed"], row["broken"]) for row in rows] == [("1", ""), ("2", ""), ("3", "")]
    assert sum(int(row["jobs"]) for row in rows) == body["jobs"]


class Ends:
    """Both ends of a link."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.heard: list[tuple[Direction, Frame]] = []
        self.lost: list[str] = []
        self.line = FlakyLink(
            self.clock,
            RandomStream(1),
            5.0,
            lambda way, frame: self.heard.append((way, frame)),
            self.lost.append,
        )
        self.line.connect(HELLO)
        self.pass_time()

    def pass_time(self) -> None:
        while self.clock.step():
            pass


HELLO = Hello("a", "0", "b", "i", NodeFacts(1, 1))
ORDERS = [Settle(job, 1) for job in range(20)]


def test_link_delivers_in_order_after_a_short_cut() -> None:
    ends = Ends()
    for order in ORDERS[:10]:
        ends.line.send(Direction.DOWN, order)
    ends.line.cut_off([Direction.DOWN])
    for order in ORDERS[10:]:
        ends.line.send(Direction.DOWN, order)
    ends.clock.after(SILENCE_S / 2, ends.line.heal)
    ends.pass_time()
    assert ends.heard == [(Direction.UP, HELLO), *((Direction.DOWN, order) for order in ORDERS)]
    assert ends.lost == []


def test_long_cut_loses_the_connection_and_frames_in_transit() -> None:
    ends = Ends()
    ends.line.cut_off([Direction.UP])
    ends.line.send(Direction.UP, HELLO)
    ends.clock.after(SILENCE_S * 2, ends.line.heal)
    ends.pass_time()
    assert ends.heard == [(Direction.UP, HELLO)]
    assert ends.lost == ["the agent has been silent"]
    assert not ends.line.open


def test_no_frame_is_sent_before_the_hello() -> None:
    ends = Ends()
    ends.line.drop()
    ends.line.connect(HELLO)
    ends.line.send(Direction.DOWN, ORDERS[0])
    ends.pass_time()
    assert ends.heard == [(Direction.UP, HELLO), (Direction.UP, HELLO)]
