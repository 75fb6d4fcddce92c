"""The same inputs at the same times give the same events and orders, byte for byte, in every process."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from controller.core.framework.interfaces import PreemptionGuards
from controller.core.model.decision.decision import Accepted, Decision
from controller.core.model.events.kinds import body_of, kind_of
from controller.core.model.inputs import agent_inputs, controller_inputs, job_inputs, node_inputs
from controller.core.model.inputs.input import Input
from controller.core.quota.queue_rules import QueueRule
from controller.core.quota.quota_config import QuotaConfig
from controller.plugins.preemption.by_priority import PriorityStrategy
from controller.plugins.quotas.local import LocalQuotas, ProjectQuotaTable, QuotaTable
from tests.engine_harness import BACKFILLS, EngineHarness, default_pipeline, facts, spec
from wire.agent.reports import AttemptStatus, Hello
from wire.codec import dumps
from wire.job.gangs import Gang
from wire.job.placement.affinity import parse_term, parse_toleration
from wire.job.placement.gpu_requirements import GpuWish
from wire.job.placement.job_affinity import parse_job_term
from wire.job.spec import JobSpec
from wire.job.start_conditions import Dependency, Restart, RestartWhen, Until

NODES = 12
STEPS = 150
TRIED = ["easy", "conservative"]
"""The kinds of backfill."""
HERE = Path(__file__).parents[3]


def rules() -> QuotaConfig:
    queues = {"short": QueueRule(priority=2, max_running=4), "default": QueueRule()}
    users = {"*": QuotaTable(gpus=40), "ada": QuotaTable(running=9)}
    return QuotaConfig(queues, LocalQuotas(users=users, projects={"p": ProjectQuotaTable(gpus=30)}))


def job(dice: random.Random, known: list[int]) -> JobSpec:
    """Return a job spec of one of many kinds, chosen by its number."""
    nodes = dice.choice([None, None, None, 2, 3])
    after = (Dependency(Until.ENDED, str(dice.choice(known))),) if known and dice.random() < 0.1 else ()
    company = [parse_job_term("app=x on node", None), parse_job_term("app=y on rack", 1)]
    return spec(
        dice.choice([0, 0.25, 0.5, 1, 2, 4]) if nodes is None else nodes * dice.choice([1, 4]),
        nodes=nodes,
        gang=Gang(1, elastic=True) if nodes and dice.random() < 0.3 else Gang(),
        priority=dice.choice([0, 30, 50, 80]),
        project=dice.choice(["p", "q", "r"]),
        queue=dice.choice(["default", "short"]),
        time_limit_s=dice.choice([None, 60.0, 600.0]),
        labels=dice.choice([{}, {"app": "x"}, {"app": "y", "team": "t"}]),
        company=(dice.choice(company),) if dice.random() < 0.1 else (),
        affinity=(parse_term("rack in r0,r1"),) if dice.random() < 0.1 else (),
        tolerations=(parse_toleration("old"),) if dice.random() < 0.3 else (),
        gpu=GpuWish(nvlink="prefer") if dice.random() < 0.2 else None,
        restart=Restart(RestartWhen.ON_FAILURE, 2, 5) if dice.random() < 0.3 else Restart(),
        array="0-3%2" if nodes is None and dice.random() < 0.1 else None,
        after=after,
    )


def run(backfill: str) -> str:
    """A digest of all that is decided about a few hundred jobs that come, run, fail and are changed."""
    strategies, guards = (PriorityStrategy(gap=10),), PreemptionGuards(min_runtime_s=5.0, cooldown_s=5.0)
    made = replace(default_pipeline(), backfill=BACKFILLS[backfill], rules=rules())
    harness = EngineHarness(replace(made, strategies=strategies, guards=guards))
    dice, digest, known = random.Random(7), hashlib.sha256(), list[int]()

    def tell(given: Input) -> Decision:
        decision = harness.engine.handle(given, harness.now)
        for event in decision.events:
            digest.update(dumps([kind_of(event), body_of(event)]).encode())
        for order in decision.orders:
            digest.update(repr((order.node, order.frame)).encode())
        return decision

    for number in range(NODES):
        host = facts(f"n{number}", gpus=4, labels={"rack": f"r{number % 3}"})
        tell(agent_inputs.AgentSaidHello(f"n{number}", Hello(f"n{number}", "0", "b", "i", host, ())))
    for _ in range(STEPS):
        for _ in range(dice.randrange(4)):
            reply = tell(job_inputs.Submit(job(dice, known), dice.choice(["ada", "bo", "cy"]))).reply
            known += reply.jobs if isinstance(reply, Accepted) else ()
        tell(controller_inputs.Tick())
        harness.now += dice.choice([1.0, 7.0, 30.0])
        for each in [each for each in harness.state.live() if each.unended and dice.random() < 0.3]:
            code = dice.choice([0, 0, 1])
            for member in each.running:
                over = AttemptStatus(each.id, each.attempt, 1, harness.now, harness.now, code=code)
                tell(agent_inputs.AgentReported(member.allocation.node, over))
        if dice.random() < 0.2:
            node = f"n{dice.randrange(NODES)}"
            tell(dice.choice([node_inputs.Drain(node, "root", "x"), node_inputs.Resume(node, "root")]))
        if known and dice.random() < 0.3:
            tell(job_inputs.Edit(dice.choice(known), "root", {"priority": dice.choice([10, 90])}))
        if dice.random() < 0.1:
            taint = {"old:NoExecute": dice.choice(["", None])}
            tell(node_inputs.MarkNode(f"n{dice.randrange(NODES)}", "root", {}, taint))
    return f"{len(known)} {digest.hexdigest()}"


def test_every_process_decides_the_same() -> None:
    """The decisions are the same for any hash seed, so for any order of iteration over sets of strings."""
    outputs = set()
    for seed in ("0", "1"):
        asked = [sys.executable, "-m", "tests.controller.core.test_determinism"]
        how = {**os.environ, "PYTHONHASHSEED": seed}
        outputs.add(
            subprocess.run(asked, cwd=HERE, env=how, capture_output=True, text=True, check=True).stdout
        )
    assert len(outputs) == 1, outputs
    lines = [line.split() for line in outputs.pop().splitlines()]
    assert [kind for kind, _, _ in lines] == TRIED
    assert all(int(jobs) > STEPS for _, jobs, _ in lines)


if __name__ == "__main__":
    for each in TRIED:
        print(each, run(each))
