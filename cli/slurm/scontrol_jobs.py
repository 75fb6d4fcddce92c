"""The verbs of scontrol that change jobs (hold, release, requeue, requeuehold, update) or write a job's
script.
"""

from __future__ import annotations

import re
import sys

from cli.slurm.arguments import Arguments
from cli.slurm.programs import SlurmError
from wire.api.jobs import JobRefused, JobsOrder
from wire.http.client import Client, Refused
from wire.names import JobState

_OPTION_OF_KEY = {
    "account": "--account",
    "comment": "--comment",
    "deadline": "--deadline",
    "dependency": "--dependency",
    "jobname": "--job-name",
    "minmemorycpu": "--mem-per-cpu",
    "minmemorynode": "--mem",
    "name": "--job-name",
    "nice": "--nice",
    "numnodes": "--nodes",
    "numtasks": "--ntasks",
    "partition": "--partition",
    "reqnodelist": "--nodelist",
    "reservationname": "--reservation",
    "excnodelist": "--exclude",
    "starttime": "--begin",
    "timelimit": "--time",
    "timemin": "--time-min",
}
"""For each key of `scontrol update`, in lower case: the option of sbatch with the same meaning."""
_UNKNOWN, _ENDED = "Invalid job id specified", "Job has already finished"
_IDS = re.compile(r",(?![^\[]*\])")
_BY_FIELD = {
    "queue": "Invalid partition name specified",
    "project": "Invalid account or account/partition combination specified",
    "time_limit_s": "Requested time limit is invalid (missing or exceeds some limit)",
    "after": "Job dependency problem",
    "reservation": "Requested reservation is invalid",
}


def hold(words: list[str], _arguments: Arguments) -> int:
    """Hold jobs, so that they do not start."""
    return _order("hold", "hold", words)


def release(words: list[str], _arguments: Arguments) -> int:
    """Release held jobs, so that they may start."""
    return _order("release", "release", words)


def requeue(words: list[str], _arguments: Arguments) -> int:
    """End the attempts of running jobs, and queue the jobs again."""
    return _order("requeue", "requeue", words)


def requeue_hold(words: list[str], _arguments: Arguments) -> int:
    """End the attempts of running jobs, queue the jobs again, and hold them."""
    return _order("requeuehold", "preempt", words, stay_held=True)


def _order(verb: str, action: str, words: list[str], *, stay_held: bool = False) -> int:
    if not words:
        raise _short(f"too few arguments for keyword:{verb}")
    jobs = [_selector(part) for word in words for part in _IDS.split(word) if part]
    holds = verb in ("hold", "release")
    failed = False
    if verb in ("requeue", "requeuehold"):
        for label in _never_requeued(jobs):
            print(f"Requested operation is presently disabled for job {label}", file=sys.stderr)
            failed = True
        if failed:
            return 1
    with Client() as client:
        for each in client.order(JobsOrder(action, tuple(jobs), stay_held=stay_held)).refused:
            state = _state_after_conflict(client, each)
            # Ignore the refusal, because in Slurm it is no error to hold a running job, or to release a job
            # that is not held.
            if holds and state is not None and not state.terminal:
                continue
            failed = True
            reason = _print_refusal(each, state)
            if holds and reason in (_UNKNOWN, _ENDED) and "_" not in each.job:
                print(f"slurm_suspend error: {reason}", file=sys.stderr)
    return int(failed)


def _state_after_conflict(client: Client, refused: JobRefused) -> JobState | None:
    """Return the state of a job whose order was refused because of this state; None for other refusals."""
    if refused.problem.code != "conflict":
        return None
    try:
        return client.job(refused.job).job.state
    except Refused:
        return None


def _print_refusal(refused: JobRefused, state: JobState | None, reason: str = "") -> str:
    """Print why an order was refused, in the words of Slurm if Slurm has the same reason. Return the reason.
    `reason` is the text for a refusal that is not due to the state of the job.
    """
    if state is not None and state.terminal:
        reason = _ENDED
    elif state is JobState.QUEUED and not reason:
        reason = "Job is pending execution"
    reason = reason or _reason(refused.problem.code, refused.problem.message)
    of_array = reason == _ENDED and "_" in refused.job
    print(f"{refused.job}: {reason}" if of_array else f"{reason} for job {refused.job}", file=sys.stderr)
    return reason


def _never_requeued(jobs: list[str]) -> list[str]:
    """Return the ids of the jobs that were submitted with --no-requeue. As in Slurm, scontrol does not
    requeue them: a script that requeues itself relies on it. `corral job requeue` requeues them.
    """
    from cli.slurm.show.controller import controller, job_rows

    named = [job for job in jobs if not job.startswith("name:")]
    if not named:
        return []
    with controller() as transport:
        rows = job_rows(transport, ("label", "requeue"), jobs=named)
    return [str(row["label"]) for row in rows if not row["requeue"]]


def _selector(text: str) -> str:
    key, equals, value = text.partition("=")
    if equals and key.lower() in ("name", "jobname"):
        return f"name:{value}"
    text = value if equals else text
    if not re.fullmatch(r"\d+(_(\d+|\[[\d,:-]+\]))?", text):
        raise _short(f"Invalid job id specified for job {text}")
    return text


def _reason(code: str, message: str) -> str:
    if code == "not_found":
        return _UNKNOWN
    if code == "not_allowed":
        return "Access/permission denied"
    return message[:1].upper() + message[1:]


def update(words: list[str], _arguments: Arguments) -> int:
    """Change jobs or nodes: `update JobId=7 TimeLimit=30`, `update NodeName=n1 State=RESUME`."""
    if not words:
        raise _short("too few arguments for update keyword")
    if any(word.lower().startswith("nodename=") for word in words):
        from cli.slurm.nodes.node_changes import update_nodes

        return update_nodes(words)
    pairs = _pairs(words)
    jobs = pairs.pop("jobid", pairs.pop("job", ""))
    if not jobs:
        raise _short(
            "Corral changes jobs and the states of nodes: write JobId=NUMBER, or NodeName=NAME.",
            "No valid entity in update command",
        )
    selectors = tuple(map(_selector, _IDS.split(jobs)))
    extension_s = _extension_s(pairs.get("timelimit", ""))
    if extension_s:
        del pairs["timelimit"]
    changes = _changes(pairs)
    with Client() as client:
        order = JobsOrder("set", selectors, changes=changes, extend_s=extension_s)
        refused = client.order(order).refused
        for each in refused:
            field = each.problem.where.removeprefix("spec.").partition(".")[0]
            reason = _BY_FIELD.get(field) or _reason(each.problem.code, each.problem.message)
            _print_refusal(each, _state_after_conflict(client, each), reason)
    return int(bool(refused))


def _extension_s(text: str) -> float:
    """Return the seconds that a value of TimeLimit such as +30 or -1:00:00 adds to the time limit, negative
    after a minus sign; 0 if the value has no sign.
    """
    if text[:1] not in ("+", "-"):
        return 0.0
    pairs = _changes({"timelimit": text[1:]})
    seconds = pairs.get("time_limit_s")
    if not isinstance(seconds, (int, float)):
        raise _short(f"Invalid TimeLimit: {text}; write +30 for 30 minutes more", "Request aborted")
    return seconds if text[0] == "+" else -seconds


def write(words: list[str], _arguments: Arguments) -> int:
    """Write the script of a job to a file: `write batch_script 7 FILE`. Without FILE, the name of the file is
    slurm-7.sh. `-` is stdout.
    """
    if not words or words[0].lower() != "batch_script":
        raise _short("invalid entity for keyword:write; write: scontrol write batch_script JOB [FILE]")
    if len(words) not in (2, 3):
        raise _short("Write: scontrol write batch_script JOB [FILE]; - is stdout")
    from cli.spec.job_script import script_of

    job = _selector(words[1])
    with Client() as client:
        try:
            spec = client.job(job).spec
        except Refused as refused:
            raise _short(
                f"job script retrieval failed: {_reason(refused.problem.code, refused.problem.message)}"
            ) from None
    script = script_of(spec.command)
    if not spec.batch or not script:
        raise _short(
            "job script retrieval failed: Invalid job id specified",
            f"job {job} has no batch script, or is a job of another user",
        )
    name = words[2] if len(words) == 3 else f"slurm-{job}.sh"
    if name == "-":
        print(script, end="")
        return 0
    with open(name, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(script)
    print(f"batch script for job {job} written to {name}")
    return 0


def _pairs(words: list[str]) -> dict[str, str]:
    """Return a dict from each key in `words`, in lower case, to its value. The two words `job 7` mean the
    same as `JobId=7`. Raise SlurmError for a word without = or with an unknown key.
    """
    found = {}
    left = list(words)
    while left:
        key, equals, value = left.pop(0).partition("=")
        if not equals and key.lower() in ("job", "jobid") and left:
            value = left.pop(0)
        elif not equals:
            raise _short(f"Invalid input: {key}", "Request aborted")
        elif key.lower() not in ("job", "jobid", *_OPTION_OF_KEY):
            raise _short(f"Update of this parameter is not supported: {key}={value}", "Request aborted")
        found[key.lower()] = value
    return found


def _changes(pairs: dict[str, str]) -> dict[str, object]:
    """Return a dict from JobSpec field to its new value as JSON data, for keys and values of `scontrol
    update`.
    """
    from cli.spec.sbatch.option_translation import translate
    from cli.spec.sbatch.resources import Option
    from cli.spec.spec_builder import read_fields
    from cli.spec.submit_options.table import OPTIONS
    from wire.codec import encode
    from wire.job.spec import JobSpec

    made = translate([Option(_OPTION_OF_KEY[key], value or None, key) for key, value in pairs.items()])
    if made.problems:
        raise _short(*made.problems)
    chosen = {name: [text] for name, text in made.pairs if name not in ("batch", "env") and name in OPTIONS}
    fields, _ = read_fields(chosen)
    spec = encode(JobSpec(("true",), **fields))
    return {field: spec[field] for field in fields}


def _short(*lines: str) -> SlurmError:
    """Print the lines, and return an error without lines. scontrol prints these lines without `scontrol:
    error:` before them, and a line of a SlurmError would get these words.
    """
    print(*lines, sep="\n", file=sys.stderr)
    return SlurmError()
