"""Faults in virtual time: the engine keeps its promises, and whoever does not is caught."""

from __future__ import annotations

import csv
import io
import json

import pytest

from cli.main import main
from controller.core.engine import Engine
from controller.core.events import body_of
from controller.sim.clock import Clock
from controller.sim.faults import many
from controller.sim.faults.controller import Controller
from controller.sim.faults.line import SILENCE_S, Frame, Line, Way
from controller.sim.faults.many import try_many
from controller.sim.faults.plan import Plan
from controller.sim.faults.trial import Trial
from controller.sim.faults.trouble import KINDS
from controller.sim.faults.verdict import Verdict, try_seed
from controller.sim.generate.dice import Dice
from tests.controller.sim import broken
from wire.frames import Hello, NodeFacts, Settle

PLAN = Plan()


def test_the_engine_keeps_its_promises() -> None:
    verdicts = try_many(PLAN, range(1, 41), lambda _done: None)
    assert [verdict.failure for verdict in verdicts] == [None] * 40
    assert [verdict.seed for verdict in verdicts] == [*range(1, 41)]
    struck = sum((verdict.troubles for verdict in verdicts), start=verdicts[0].troubles)
    assert struck.keys() == KINDS.keys()


@pytest.mark.parametrize(
    ("engine", "promises"),
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
        (broken.ForgetsStops, "1w"),
        (broken.LetsGangsRun, "w"),
        (broken.NeverLeaves, "1w"),
        (broken.IgnoresLeases, "2"),
        (broken.LendsTooMuch, "5"),
        (broken.OversleepsItsMoments, "1"),
        (broken.StartsHeldJobs, "c"),
        (broken.SaysLessThanItDoes, "9"),
    ],
)
def test_a_broken_engine_is_caught(engine: type[Engine], promises: str) -> None:
    verdict = _first_failure(engine, Controller)
    assert verdict.failure is not None
    assert verdict.failure.promise[0] in promises, verdict.failure


@pytest.mark.parametrize(
    ("controller", "promises"),
    [(broken.AnswersFirst, "1"), (broken.OrdersFirst, "1235679"), (broken.ForgetsItsNumbers, "19c")],
)
def test_a_broken_controller_is_caught(controller: type[Controller], promises: str) -> None:
    verdict = _first_failure(Engine, controller)
    assert verdict.failure is not None
    assert verdict.failure.promise[0] in promises, verdict.failure


def _first_failure(engine: type[Engine], controller: type[Controller]) -> Verdict:
    for seed in range(1, 61):
        verdict = try_seed(PLAN, seed, engine, controller)
        if verdict.failure is not None:
            return verdict
    return verdict


def test_the_same_seed_is_the_same_life() -> None:
    def life(seed: int) -> list[str]:
        trial = Trial(PLAN, seed)
        trial.run()
        return [body_of(event) for event in trial.controller.store.journal]

    assert life(3) == life(3)
    assert life(3) != life(4)


def test_a_failing_seed_says_how_to_see_it_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(many, "try_seed", lambda plan, seed: try_seed(plan, seed, broken.RunsTwice))
    assert main(["sim", "faults", "--seeds", "7", "--hours", "3", "--jobs", "30"]) == 1
    out = capsys.readouterr().out
    command = "corral sim faults --seeds 7 --hours 3 --nodes 4 --jobs 30"
    assert "seeds         1, 1 of them failed" in out
    assert "seed 7 broke a promise: " in out
    assert f"To see it again: {command}\n" in out
    assert "AttemptStarted job=" in out
    assert main([*command.split()[1:], "-o", "json"]) == 1
    (failure,) = json.loads(capsys.readouterr().out)["failures"]
    assert failure["command"] == command
    assert failure["how"] in out
    assert main([*command.split()[1:], "-o", "csv"]) == 1
    (row,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert (row["seed"], row["broken"]) == ("7", failure["promise"])


def test_seeds_that_cannot_be_read_and_policies_that_are_not_there(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["sim", "faults", "--seeds", "all"]) == 2
    assert "--seeds: cannot read 'all'" in capsys.readouterr().err
    assert main(["sim", "faults", "--config", "/nowhere/scheduler.toml"]) == 2
    assert "/nowhere/scheduler.toml: there is no such file" in capsys.readouterr().err


def test_one_policy_can_be_tried_alone(tmp_path: object, capsys: pytest.CaptureFixture[str]) -> None:
    path = f"{tmp_path}/scheduler.toml"
    with open(path, "w", encoding="utf-8") as file:
        file.write('[scheduler]\norder = "fifo"\nbackfill = "none"\n')
    assert main(["sim", "faults", "--seeds", "1-3", "--hours", "1", "--config", path, "-o", "json"]) == 0
    body = json.loads(capsys.readouterr().out)
    assert (body["seeds"], body["failures"]) == (3, [])
    assert main(["sim", "faults", "--seeds", "1-3", "--hours", "1", "--config", path, "-o", "csv"]) == 0
    rows = [*csv.DictReader(io.StringIO(capsys.readouterr().out))]
    assert [(row["seed"], row["broken"]) for row in rows] == [("1", ""), ("2", ""), ("3", "")]
    assert sum(int(row["jobs"]) for row in rows) == body["jobs"]


class Ends:
    """Both ends of a line."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.heard: list[tuple[Way, Frame]] = []
        self.lost: list[str] = []
        self.line = Line(
            self.clock, Dice(1), 5.0, lambda way, frame: self.heard.append((way, frame)), self.lost.append
        )
        self.line.connect(HELLO)
        self.pass_time()

    def pass_time(self) -> None:
        while self.clock.step():
            pass


HELLO = Hello("a", "0", "b", "i", NodeFacts(1, 1))
ORDERS = [Settle(job, 1) for job in range(20)]


def test_a_line_delivers_in_order_also_what_a_short_cut_held_back() -> None:
    ends = Ends()
    for order in ORDERS[:10]:
        ends.line.send(Way.DOWN, order)
    ends.line.cut_off([Way.DOWN])
    for order in ORDERS[10:]:
        ends.line.send(Way.DOWN, order)
    ends.clock.after(SILENCE_S / 2, ends.line.heal)
    ends.pass_time()
    assert ends.heard == [(Way.UP, HELLO), *((Way.DOWN, order) for order in ORDERS)]
    assert ends.lost == []


def test_a_long_cut_costs_the_connection_and_what_was_on_its_way() -> None:
    ends = Ends()
    ends.line.cut_off([Way.UP])
    ends.line.send(Way.UP, HELLO)
    ends.clock.after(SILENCE_S * 2, ends.line.heal)
    ends.pass_time()
    assert ends.heard == [(Way.UP, HELLO)]
    assert ends.lost == ["the agent has been silent"]
    assert not ends.line.open


def test_nothing_is_sent_before_the_hello_has_arrived() -> None:
    ends = Ends()
    ends.line.drop()
    ends.line.connect(HELLO)
    ends.line.send(Way.DOWN, ORDERS[0])
    ends.pass_time()
    assert ends.heard == [(Way.UP, HELLO), (Way.UP, HELLO)]
