"""Examples of request and answer bodies for the OpenAPI document. Each example is an object of wire.api and
therefore matches its schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wire.api.forecasts import CERTAIN, RESERVATION, JobEdit, Plan, PlanBlock, PlanEntry, PlanPoint, WhatIf
from wire.api.jobs import (
    JobChange,
    JobsOrder,
    KeepRequest,
    PreemptAction,
    ShellGiven,
    ShellOpened,
    ShellRequest,
    SignalRequest,
    SubmitRequest,
    Submitted,
)
from wire.api.nodes import HostKey, NodeAction, NodeDrain, NodeMarks, NodeRequest
from wire.api.policy.queues import QueueDay, QueueList, QueueView
from wire.api.policy.quotas import QuotaChange, QuotaView
from wire.api.policy.rebalance import RebalanceRequest
from wire.api.policy.reservations import ReservationView, ReserveRequest
from wire.api.policy.scheduler import PassView, SchedulerView, SwitchView, TopologyView, Triggered
from wire.api.policy.services import ScaleRequest
from wire.api.policy.shares import ShareWeight
from wire.api.problem import Problem
from wire.api.service.cluster import Health, PulseSample, PulseView
from wire.api.service.config import ConfigRequest
from wire.api.service.reports import UsageList, UsageView
from wire.api.service.store import Compacted, CompactRequest
from wire.cluster.hosts import HostSpec
from wire.cluster.quota import Limits, Quota
from wire.cluster.reservation import ReservationSpec
from wire.job.spec import JobSpec
from wire.workload.bodies import WorkloadRequest, WorkloadRetry
from wire.workload.spec import WorkloadSpec, WorkloadTask

NOON, HOUR_S = 1_800_014_400.0, 3_600.0
TRAIN = JobSpec(("python", "train.py"), name="train", project="vision", gpus=4, time_limit_s=4 * HOUR_S)
EVAL = JobSpec(("python", "eval.py"), name="eval", project="vision", gpus=1)
COURSE = ReservationSpec("course", NOON, 2 * HOUR_S, ("gpu01",), users=("ada",), why="GPU course")
VISION = Quota(Limits(gpus=16.0, running=20), Limits(gpus=8.0))
RUNNING = PlanEntry(
    41, "41", "train", "ada", "vision", "default", 4.0, ("gpu01",), NOON - HOUR_S, NOON + HOUR_S, CERTAIN
)
WAITING = PlanEntry(
    42, "42", "eval", "bob", "speech", "short", 8.0, ("gpu01",), NOON + HOUR_S, NOON + 2 * HOUR_S
)
SHORT = QueueView(
    "short",
    10,
    ("time limit at most 4h00m",),
    3,
    1,
    4.0,
    {"priority": 10},
    QueueDay(NOON - 24 * HOUR_S, 120, 110, 4, 95.0, 1_300.0, 2_410.5, 4.75),
)

_ALL: tuple[Any, ...] = (
    SubmitRequest(TRAIN, key="train-2027-01-15"),
    Submitted((42,), "42"),
    JobChange({"priority": 80}, extend_s=HOUR_S),
    JobsOrder("cancel", ("7_[0-9]", "user:ada")),
    PreemptAction(hold=True),
    KeepRequest(4 * HOUR_S, "reading the profiles of the last run"),
    SignalRequest("USR1"),
    ShellRequest(("nvidia-smi",)),
    ShellOpened("a3f9c2d1"),
    ShellGiven(end=True),
    NodeAction("new fans"),
    NodeDrain("new fans", NOON + 6 * HOUR_S, dry_run=True),
    NodeMarks({"zone": "north"}, {"maintenance": "NoSchedule"}),
    NodeRequest("gpu07", HostSpec(ssh="corral@gpu07.lab.example")),
    HostKey("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ0000000000000000000000000000000000000000000"),
    QuotaChange(VISION),
    QuotaView("project", "vision", VISION, Limits(gpus=12.0, running=3), edited=True),
    ReserveRequest(COURSE),
    ReservationView(COURSE, ("gpu01",), NOON, NOON + 2 * HOUR_S, on=False, by="root"),
    RebalanceRequest("5d3a9c10"),
    ScaleRequest(3),
    ShareWeight("vision", weight=3.0),
    ConfigRequest("[queues.short]\nmax_time_limit_s = 14400\n", dry_run=True),
    CompactRequest(jobs_days=90.0, journal_days=365.0),
    Compacted(1_200, 18_400, 18_400),
    WhatIf(edit=(JobEdit(42, {"gpus": 4}),), drain=("gpu02",)),
    WorkloadRequest(WorkloadSpec((WorkloadTask("train", TRAIN), WorkloadTask("eval", EVAL)), "vision")),
    WorkloadRetry(),
    Problem("never_fits", "can never be placed: 1 node with 16 GPUs", "spec.gpus", "Ask for fewer GPUs."),
    Health("ok", "0.1.0", 86_400.0, 4_711, "ada", "user"),
    UsageList((UsageView("ada", 12, 96.5, 71.3, 98, 60_412, 31_250.0, 40.2),), NOON, NOON + HOUR_S, 1),
    QueueList((SHORT,), 4_711),
    Triggered(2, 5, 4_713),
    SchedulerView(
        *("priority", "easy", {"order": "priority"}, {"strategies": []}, (), "local", 5, 1, 7, 9_034, 0.004),
        PassView(NOON, 0.003, 1),
        4_711,
    ),
    TopologyView((SwitchView("rack1", "", ("gpu01", "gpu02")),), (), 4_711),
    Plan(
        NOON,
        24 * HOUR_S,
        (RUNNING, WAITING),
        (PlanBlock(RESERVATION, "course", ("gpu02",), NOON, NOON + 2 * HOUR_S, "GPU course"),),
        (PlanPoint(NOON, 12.0), PlanPoint(NOON + HOUR_S, 8.0), PlanPoint(NOON + 2 * HOUR_S, 16.0)),
        16,
        1,
        0,
        as_of=4_711,
    ),
    PulseView(
        (PulseSample(NOON, 16, 12.0, 83.5, 4_120.0, 5.0, 96.0, 14.0, 1.0, 95.0, 1_300.0, 0.25),),
        60.0,
        86_400.0,
        NOON - HOUR_S,
        NOON,
    ),
)
EXAMPLES: Mapping[type[Any], Any] = {type(each): each for each in _ALL}
"""The example body of each class of wire.api."""
