"""corral job show, submit --dry-run and explain: what is printed about a job."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cli.output.details.job_details import line_of
from cli.output.details.spec_details import of_spec
from cli.output.details.wait_details import of_node_scores, of_preemption, of_why
from cli.output.hours_line import hours_text
from cli.output.table_columns import clock
from cli.spec.option_sources import OptionText, from_flags
from cli.spec.spec_builder import spec_from
from cli.spec.submit_options.flag_groups import SubmitOptions
from cli.spec.submit_options.table import OPTIONS
from tests.tui.recorded import NOW, job
from wire.api.forecasts import Explanation
from wire.api.policy.shares import HoursInForce
from wire.api.reasons import FilterLoss, NodeScore, Ousted, Points, Why
from wire.job.spec import JobSpec
from wire.names import JobState, Reason

TEXTS = {
    "priority": "high",
    "cpus": "3",
    "memory": "3G",
    "scratch": "3G",
    "gpus": "3",
    "gpus_per_node": "3",
    "nodes": "3",
    "tasks_per_node": "3",
    "min_nodes": "3",
    "assembly_time": "3m",
    "on_member_failure": "continue",
    "gpu_memory": "3G",
    "min_gpu_memory": "3G",
    "numa": "prefer",
    "nvlink": "prefer",
    "label": "app=x",
    "near": "app=x on rack",
    "apart": "app=x on rack",
    "over": "app=x on rack=3",
    "same": "rack",
    "different": "rack",
    "domains": "rack=3",
    "select": "disk=x",
    "affinity": "disk exists",
    "prefer": "disk exists",
    "tolerate": "gpu",
    "env": "A=3",
    "umask": "033",
    "time": "3m",
    "grace": "3m",
    "checkpoint_signal": "USR2",
    "checkpoint_time": "3m",
    "checkpoint_keep": "3",
    "checkpoint_every": "3m",
    "checkpoint_size": "3G",
    "liveness_command": "test -e alive",
    "liveness_http": "http://127.0.0.1:8000/",
    "liveness_file": "alive",
    "liveness_file_age": "3m",
    "liveness_every": "3m",
    "liveness_timeout": "3m",
    "liveness_failures": "33",
    "liveness_grace": "3m",
    "liveness_action": "notify",
    "time_min": "15m",
    "warn_signal": "USR2",
    "mail_type": "END,FAIL",
    "warn_time": "3m",
    "min_runtime": "3m",
    "array": "0-3",
    "begin": "2033-03-03",
    "deadline": "2033-03-03",
    "timeout": "3m",
    "restart": "always:3",
    "restart_delay": "3m",
    "restart_codes": "33",
    "on_node_lost": "manual",
    "after": "3",
    "after_ok": "3",
    "after_not_ok": "3",
    "after_end": "3",
    "after_checkpoint": "3",
    "after_count": "3",
    "after_timeout": "3m",
    "relax": "nodes",
    "relax_after": "3m",
    "cpu_limit": "3",
    "memory_limit": "3G",
}
"""Valid values of some options; the other options take any text."""

TOGETHER = {
    "assembly_time": ("min_nodes",),
    "checkpoint_time": ("checkpoint_signal",),
    "checkpoint_every": ("checkpoint_signal",),
    **dict.fromkeys(
        ("liveness_every", "liveness_timeout", "liveness_failures", "liveness_grace", "liveness_action"),
        ("liveness_http",),
    ),
    "liveness_file_age": ("liveness_file",),
    "warn_time": ("warn_signal",),
    "restart_delay": ("restart",),
    "restart_codes": ("restart",),
    "after_count": ("after",),
    "after_timeout": ("after",),
    "relax_after": ("relax",),
    "cpu_limit": ("cpus",),
    "memory_limit": ("memory",),
}
"""Options that are valid only with another option."""


def spec_with(*names: str) -> JobSpec:
    options = SubmitOptions()
    for name in names:
        text = TEXTS.get(name, "x")
        options[name] = True if OPTIONS[name].is_switch else [text] if OPTIONS[name].repeats else text
    return spec_from(("true",), "", from_flags(options), {})


# Without separate_output, because its effect shows only with a submitting shell.
@pytest.mark.parametrize("name", [name for name in OPTIONS if name != "separate_output"])
def test_every_option_shows_in_the_printed_job(name: str) -> None:
    others = TOGETHER.get(name, ())
    assert of_spec(spec_with(*others, name)) != of_spec(spec_with(*others))


@pytest.mark.parametrize("name", [name for name in OPTIONS if name not in ("gpus_per_node", "env")])
def test_every_option_is_read_back_from_the_flags_that_it_prints(name: str) -> None:
    spec = spec_with(*TOGETHER.get(name, ()), name)
    given = {
        option.name: [OptionText(text or "true", option.flag) for text in option.texts(spec)]
        for option in OPTIONS.values()
        if option.name != "env" and option.texts(spec)
    }
    assert spec_from(("true",), "", given, {}) == spec


def test_the_reason_for_no_preemption_now_is_shown_beside_a_later_preemption() -> None:
    victims = (Ousted(3, "3", "low", "bob", 4.0, at=NOW),)
    reason = "jobs that could be preempted for it have run for less than 5m00s (min_runtime_s)"
    waiting, why = job(7), Why(Reason.RESOURCES, "needs 1 node with 8 GPUs")
    now, later = of_preemption(
        Explanation(waiting, why, victims=victims, makes_room=True, no_preemption=reason)
    ).splitlines()
    assert now == f"no job now: {reason}"
    assert later.startswith("job 3 at ")
    assert of_preemption(Explanation(waiting, why)) == ""


def test_a_cause_that_the_sentence_names_is_not_repeated() -> None:
    one = FilterLoss("gpus", 2, "no free GPU", ("gpu01", "gpu02"))
    other = FilterLoss("labels", 1, "no label disk", ("gpu03",))
    sentence = "needs 1 GPU; 0 of 2 can give that now: no free GPU (gpu01, gpu02)"
    assert of_why(Why(Reason.RESOURCES, sentence, losses=(one,))) == sentence
    assert of_why(Why(Reason.RESOURCES, "needs 1 GPU", losses=(one, other))).splitlines() == [
        "needs 1 GPU",
        "2 nodes: no free GPU (gpu01, gpu02)",
        "1 node: no label disk (gpu03)",
    ]


def test_scores_of_nodes() -> None:
    parts = (Points("fit", 0.5, 30, 15.0), Points("data", 1.0, 50, 50.0))
    why = Why(Reason.RESOURCES, "busy", nodes=(NodeScore("gpu01", parts),))
    assert of_node_scores(why) == "gpu01: 65.0 points = 0.50 × 30 fit + 1.00 × 50 data"
    why = Why(Reason.RESOURCES, "busy", nodes=(NodeScore("gpu01", parts, fits=False),))
    assert of_node_scores(why).startswith("it fits on no node now; these could hold it:\ngpu01: 65.0")
    assert of_node_scores(Why(Reason.RESOURCES, "busy")) == ""
    nodes = (NodeScore("gpu01", parts, chosen=True), NodeScore("gpu02", parts[:1]))
    assert of_node_scores(Why(Reason.NONE, "runs", nodes=nodes)).splitlines() == [
        "points when the job was placed, * marks its nodes:",
        "* gpu01: 65.0 points = 0.50 × 30 fit + 1.00 × 50 data",
        "  gpu02: 15.0 points = 0.50 × 30 fit",
    ]


def test_hours_in_force() -> None:
    until = clock(NOW)
    night = HoursInForce(("night",), NOW)
    assert hours_text(night, "[quota]") == f"[hours.night] is in force until {until}, then [quota]"
    day = HoursInForce((), NOW, ("night", "weekend"))
    text = f"[quota] is in force until {until}, then [hours.night] and [hours.weekend]"
    assert hours_text(day, "[quota]") == text
    assert hours_text(HoursInForce(("a", "b")), "[quota]") == "[hours.a] and [hours.b] are in force"


def test_the_line_of_an_extended_job_has_its_time_limit() -> None:
    running = replace(job(7), state=JobState.RUNNING, reason=Reason.NONE, detail="", time_limit_s=7_200.0)
    assert line_of(running) == "job 7: RUNNING"
    assert line_of(running, limit=True) == "job 7: RUNNING, time limit 2h00m"
