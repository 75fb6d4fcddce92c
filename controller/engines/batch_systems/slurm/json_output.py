"""Reads the JSON of squeue and slurmrestd, in the forms of Slurm 22.05 and of Slurm 23.11 and later."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from controller.engines.batch_systems.batch_job import BatchStatus, Phase, Unreadable
from controller.engines.batch_systems.slurm.job_states import cause_of, phase_of, reason_text


def parse_jobs(text: str) -> list[BatchStatus]:
    """Return the jobs in the list `jobs` of an answer. Raise Unreadable if the answer has errors or no such
    list.

    Slurm 22.05 writes a state as a text and numbers as numbers; the exit code is a wait status. Later
    versions write a list of states, and numbers as `{"set": true, "infinite": false, "number": 17}`.
    """
    try:
        answer = json.loads(text)
    except ValueError as error:
        raise Unreadable(f"Slurm's answer is not JSON: {error}") from None
    if not isinstance(answer, dict) or not isinstance(answer.get("jobs"), list):
        raise Unreadable(f"Slurm's answer has no jobs: {errors_of(answer) or text[:200]}")
    if said := errors_of(answer):
        raise Unreadable(f"Slurm's answer is not complete: {said}")
    return [_job(each) for each in answer["jobs"]]


def errors_of(answer: object) -> str:
    """Return the errors in an answer as one text; empty without errors."""
    errors = answer.get("errors") if isinstance(answer, dict) else None
    said = [
        str(each.get("error") or each.get("description") or each) if isinstance(each, dict) else str(each)
        for each in errors or ()
    ]
    return "; ".join(said)


def _job(each: Mapping[str, Any]) -> BatchStatus:
    states = each["job_state"]
    text = states if isinstance(states, str) else " ".join(states)
    reason = reason_text(str(each.get("state_reason", "")))
    phase = phase_of(text, reason)
    over = phase is Phase.ENDED
    code, signal = _exit_status(each.get("exit_code")) if over else (None, None)
    begun = phase not in (Phase.WAITING, Phase.HELD)
    number, array, index = (_number(each.get(name)) for name in ("job_id", "array_job_id", "array_task_id"))
    return BatchStatus(
        f"{array}_{index}" if array and index is not None else str(number),
        str(each.get("name", "")),
        phase,
        text,
        reason,
        str(each.get("nodes") or ""),
        str(each.get("partition") or ""),
        _time(each.get("submit_time")),
        _time(each.get("start_time")) if begun else None,
        _time(each.get("end_time")) if over else None,
        cause_of(text),
        code,
        signal,
        str(each.get("user_name") or ""),
    )


def _exit_status(value: object) -> tuple[int | None, int | None]:
    if isinstance(value, dict):
        signal = _number(value.get("signal", {}).get("signal_id", value.get("signal", {}).get("id")))
        return (None, signal) if signal else (_number(value.get("return_code")), None)
    status = _number(value)
    if status is None:
        return None, None
    return (None, status & 0x7F) if status & 0x7F else (status >> 8, None)


def _number(value: object) -> int | None:
    if isinstance(value, dict):
        return int(value["number"]) if value.get("set") and not value.get("infinite") else None
    return int(value) if isinstance(value, int | float) else None


def _time(value: object) -> float | None:
    number = _number(value)
    return float(number) if number else None
