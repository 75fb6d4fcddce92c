"""A question names all effects of a change before it is made."""

from __future__ import annotations

from dataclasses import replace

from tests.tui.recorded import NOW, job, jobs, nodes
from tui.changes import confirmations
from wire.api.forecasts import WhatIf
from wire.names import JobState


def said(question: confirmations.Confirmation) -> list[str]:
    return ["".join(text for text, _ in line) for line in question.lines]


def test_cancel_question_names_jobs_owners_and_lost_work() -> None:
    rows = [row for row in jobs() if row.id in (1, 3, 12)]
    question = confirmations.cancel(rows, NOW)
    assert question.title == "Cancel 3 jobs?"
    assert question.button == "Cancel 3 jobs"
    assert question.command == "corral job cancel 1 3 12"
    assert said(question) == [
        "Owners   dmitri, emeka, bob",
        "Running  2 get SIGTERM now, SIGKILL after the grace time",
        "Lost     3.0 GPU-hours since they started, on 8.5 GPUs",
        "Waiting  1 leave the queue",
        "",
        "● running  1 dpo  dmitri · 8 GPUs · 20m00s",
        "● running  3 whisper-large  emeka · 0.5 GPU · 46m00s",
        "○ queued  12 rlhf-ppo  bob · 1 GPU · 4h48m",
    ]
    assert question.must_type == ""
    assert question.trial == WhatIf(cancel=(1, 3, 12))


def test_preempt_question_names_lost_work_and_that_jobs_stay() -> None:
    rows = [row for row in jobs() if row.id in (1, 3)]
    question = confirmations.preempt(rows, NOW)
    assert (question.title, question.command) == ("Preempt 2 jobs?", "corral job preempt 1 3")
    assert said(question)[:3] == [
        "Owners   dmitri, emeka",
        "Effect   they save their state if they can, end, and are queued again",
        "Lost     3.0 GPU-hours on 8.5 GPUs, unless saved",
    ]
    assert not confirmations.preemptible(job(12))


def test_cancel_question_of_a_waiting_job_names_no_lost_work() -> None:
    question = confirmations.cancel([job(12)], NOW)
    assert question.title == "Cancel 1 job?"
    assert said(question)[:2] == ["Owners   bob", "Waiting  1 leave the queue"]


def test_lost_work_without_gpus_is_named() -> None:
    question = confirmations.cancel([job(5, JobState.RUNNING, gpus=0)], NOW)
    assert "Lost     their work since they started" in said(question)


def test_question_about_many_jobs_counts_owners_and_requires_the_number() -> None:
    rows = [
        replace(job(12), id=number, label=str(number), user=f"user{number % 7}") for number in range(1, 31)
    ]
    question = confirmations.cancel(rows, NOW)
    lines = said(question)
    assert lines[-1] == "  … and 24 more"
    assert "Owners   user1 (5), user2 (5), user3 (4), user4 (4), user5 (4) and 2 more" in lines
    assert question.must_type == "30"


def test_control_characters_in_names_are_replaced() -> None:
    question = confirmations.cancel([job(12, label="1\x1b[2J", name="a\nb\u202e", user="\x07x")], NOW)
    everything = question.command + question.title + "".join(said(question))
    assert not set(everything) & set("\x1b\n\u202e\x07")
    assert question.command == "corral job cancel '1\ufffd[2J'"


def test_drain_question_names_running_jobs_and_closed_gpus() -> None:
    question = confirmations.drain([nodes()[1]])
    assert question.title == "Drain node-2?"
    assert said(question) == [
        "Running  5 jobs continue to their end",
        "Effect   no new job starts there; 0.5 free GPUs take no jobs",
    ]
    assert (question.command, question.reason) == ("corral nodes drain node-2", "--why")
