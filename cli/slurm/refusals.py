"""Translates refusals of the controller to the error messages of Slurm."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from cli.slurm.programs import SlurmError
from wire.http.transport import Refused, Unreachable
from wire.job.spec import JobSpec
from wire.text import printable

_BY_FIELD = {
    "queue": "Invalid partition name specified",
    "project": "Invalid account or account/partition combination specified",
    "time_limit_s": "Requested time limit is invalid (missing or exceeds some limit)",
    "licences": "Invalid license specification",
    "after": "Job dependency problem",
    "reservation": "Requested reservation is invalid",
    "array": "Invalid job array specification",
    "affinity": "Invalid node name specified",
    "gpu_models": "Requested node configuration is not available",
    "gpus": "Requested node configuration is not available",
}
_BY_CODE = {
    "never_fits": "Requested node configuration is not available",
    "over_quota": "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)",
    "not_allowed": "Access/permission denied",
    "too_large": "Pathname of a file, directory or other parameter too long",
}


def unreachable(error: Unreachable) -> list[str]:
    """Return the lines that say why no controller answers, and what the user can do."""
    return ". ".join(filter(None, (str(error), error.hint))).splitlines()


def unknown_reservation(
    wanted: Sequence[str], known: Collection[str], action: str = "Batch job submission failed"
) -> SlurmError | None:
    """Return the error of sbatch if a reservation in `wanted` does not exist; None if all exist. `action`,
    such as `Batch job submission failed`, begins the last line of the error.
    """
    unknown = next((name for name in wanted if name not in known), None)
    if unknown is None:
        return None
    reason = f"there is no reservation {printable(unknown)!r}: scontrol show reservation lists them"
    return SlurmError(reason, f"{action}: Requested reservation is invalid")


def submit_refused(
    refused: Refused, spec: JobSpec, action: str = "Batch job submission failed"
) -> SlurmError:
    """Return the error of sbatch for a refused job, with two lines: the controller's reason, and Slurm's
    message for such an error. `action`, such as `Batch job submission failed`, begins the second line.
    """
    problem = refused.problem
    field = problem.where.removeprefix("spec.").partition(".")[0].partition("[")[0]
    words = _BY_FIELD.get(field) or _BY_CODE.get(problem.code) or "Unspecified error"
    if is_unknown_partition(refused):
        return SlurmError(f"invalid partition specified: {spec.queue}", f"{action}: {words}")
    where = f"{field}: " if field and field not in problem.message else ""
    reason = " ".join(f"{where}{problem.message}. {problem.hint}".split())
    return SlurmError(reason.rstrip(" ."), f"{action}: {words}")


def is_unknown_partition(refused: Refused) -> bool:
    """Return whether the controller refused the job because its queue does not exist."""
    return refused.problem.where == "spec.queue" and refused.problem.code == "invalid"
