"""Builds the JobSpec of a new job from flags, environment variables, the script and the shell in which the
job is submitted.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from cli.exit_codes import CommandError
from cli.spec import job_script
from cli.spec.dependencies_and_restarts import AFTER, restart_of
from cli.spec.option_sources import Layer, OptionText, from_environment, from_flags, merged
from cli.spec.submit_options.job_option import JobOption, directory
from cli.spec.submit_options.table import FLAG_OF_FIELD, OPTIONS
from cli.spec.submitter_environment import Submitter, variables
from wire.dataclass import dataclass
from wire.job.gangs import Gang
from wire.job.health import HealthAction, HealthCheck
from wire.job.placement.gpu_requirements import GpuWish, Topology
from wire.job.spec import JobSpec, gpus_text, spec_problems

if TYPE_CHECKING:
    from cli.spec.submit_options.flag_groups import SubmitOptions

NO_SUBMITTER = Submitter()
"""The submitter of a job that is not submitted from a shell. Such a job gets no umask and no variables of a
shell.
"""


@dataclass(frozen=True)
class Submission:
    """The job to submit. `wait` is True if `corral submit` must wait until the job has ended, because the
    script has #SBATCH --wait.
    """

    spec: JobSpec
    wait: bool = False


def spec_of(
    options: SubmitOptions,
    words: list[str],
    *,
    is_command: bool,
    environment: Mapping[str, str] = os.environ,
    submitter: Submitter = NO_SUBMITTER,
) -> JobSpec:
    """Return the JobSpec of the job that the command line describes, after the checks of `submission_of`."""
    return submission_of(
        options, words, is_command=is_command, environment=environment, submitter=submitter
    ).spec


def submission_of(
    options: SubmitOptions,
    words: list[str],
    *,
    is_command: bool,
    environment: Mapping[str, str] = os.environ,
    submitter: Submitter = NO_SUBMITTER,
) -> Submission:
    """Return the job of this command line, after all checks that need no cluster. Raise CommandError if a
    check fails.

    If `is_command` is true, `words` are a command, otherwise a script and its arguments. Flags override
    environment variables, and these override the lines of the script. `submitter` is the shell in which the
    user submits the job; the job gets the umask and the activated venv or conda environment of this shell.
    """
    layers = [from_flags(options), from_environment(environment)]
    if not words:
        raise CommandError(
            "there is nothing to run",
            "Name a script, or write a command behind '--': corral submit --gpus 1 -- python train.py",
        )
    wait = False
    if is_command:
        command, name = tuple(words), os.path.basename(words[0])
    else:
        read = job_script.read(words[0], words[1:])
        command, name, wait = read.command, read.name, read.wait
        layers.append(read.options)
    spec = spec_from(command, name, merged(*layers), environment, submitter)
    _check(spec)
    return Submission(spec, wait)


def spec_from(
    command: tuple[str, ...],
    name: str,
    options: Layer,
    environment: Mapping[str, str],
    submitter: Submitter = NO_SUBMITTER,
) -> JobSpec:
    """Return the JobSpec that the options describe. Raise CommandError if the text of an option is invalid.
    The values of the JobSpec are not checked.

    1. Parse each option of the table of job options. The functions in COMBINED join options that set the same
       field.
    2. Compute the numbers of GPUs and nodes and the environment, which depend on several options.
    3. Fill in the defaults of `corral submit` for name, directory, umask and logs.
    """
    fields, gpus = read_fields(options)
    fields["gpus"], fields["nodes"] = _gpus_and_nodes(fields.get("nodes"), **gpus)
    # Pass no variables of the user's shell to a container, because the PATH of the host would hide the
    # programs of the image.
    inherited = {} if fields.get("image") else submitter.activated
    fields["env"] = variables(options.get("env", []), environment, inherited)
    fields["name"] = fields.get("name") or name[:200]
    if "workdir" not in fields:
        fields["workdir"] = directory(os.curdir)
    fields.setdefault("umask", submitter.umask)
    one_log = fields.get("merge_output", True) and not fields.get("error") and submitter is not NO_SUBMITTER
    fields["merge_output"] = one_log
    return JobSpec(command=command, **fields)


def read_fields(options: Layer) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a dict from each JobSpec field that the options set to its value. Also return a dict with the
    values of --gpus (`total`) and --gpus-per-node (`each`), which together set the fields `gpus` and `nodes`.
    Raise CommandError if the text of an option is invalid.
    """
    fields: dict[str, Any] = {}
    parts: dict[str, dict[str, Any]] = {}
    for option in OPTIONS.values():
        if option.name not in options or option.name == "env":
            continue
        values = [_read(each, option) for each in options[option.name]]
        if option.part:
            parts.setdefault(option.field, {})[option.part] = values[-1]
        elif option.field in JOINED:
            fields[option.field] = [*fields.get(option.field, []), *values]
        else:
            fields[option.field] = values[-1]
    for field, values_of_parts in parts.items():
        if field != "gpus":
            fields[field] = COMBINED[field](**values_of_parts)
    for field, join in JOINED.items():
        if field in fields:
            fields[field] = join(fields[field])
    return fields, parts.get("gpus", {})


def _read(written: OptionText, option: JobOption) -> Any:
    try:
        return option.read(written.text)
    except ValueError as error:
        raise CommandError(
            f"{written.source}: {error}", "'corral submit --help' shows how to write it."
        ) from None


def _gpu_requirements(**parts: Any) -> GpuWish | None:
    requested = {part: value for part, value in parts.items() if value}
    return GpuWish(**requested) if requested else None


def _liveness(**parts: Any) -> HealthCheck | None:
    written = {part: value for part, value in parts.items() if value is not None}
    if not written:
        return None
    if not written.keys() & {"command", "url", "file"}:
        raise CommandError(
            "the --liveness options need a check",
            "Add --liveness-command COMMAND, --liveness-http URL or --liveness-file FILE.",
        )
    return HealthCheck(**{"action": HealthAction.RESTART, **written})


COMBINED: Mapping[str, Callable[..., Any]] = {
    "gpu": _gpu_requirements,
    "gang": Gang,
    "health": _liveness,
    "restart": restart_of,
}
"""For each field that several options set together: the function that computes its value. The function gets
the value of an option in the argument whose name is the `part` of the option.
"""


def _only_topology(values: list[Topology]) -> Topology:
    if len(values) > 1:
        raise CommandError("--same, --different and --domains cannot be combined", "Use only one of them.")
    return values[0]


JOINED: Mapping[str, Callable[[list[Any]], Any]] = {
    "after": lambda lists: tuple(each for one in lists for each in one),
    "affinity": tuple,
    "company": tuple,
    "datasets": tuple,
    "gpu_models": tuple,
    "labels": dict,
    "licences": dict,
    "mounts": tuple,
    "preferences": tuple,
    "relax": lambda names: tuple(dict.fromkeys(names)),
    "selector": dict,
    "tolerations": tuple,
    "topology": _only_topology,
}
"""For each field that collects several values: the function that combines these values. Every other field
gets the last value.
"""


def _gpus_and_nodes(
    nodes: int | None, total: float | None = None, each: int | None = None
) -> tuple[float, int | None]:
    """Return the number of GPUs on all nodes together, and the number of nodes. Raise CommandError if both
    `total` (--gpus) and `each` (--gpus-per-node) are given, and `total` is not `each` times the number of
    nodes.
    """
    if each is None:
        return total or 0, nodes
    if nodes is None:
        nodes = max(1, round((total or each) / each))
    if total is not None and total != each * nodes:
        raise CommandError(
            f"--gpus {gpus_text(total)} and --gpus-per-node {each} do not agree for {nodes} nodes",
            f"Leave one of them out: {nodes} nodes with {each} GPUs have {each * nodes}.",
        )
    return float(each * nodes), nodes


def _check(spec: JobSpec) -> None:
    found = [f"{flag_of(where, spec) or where}: {sentence}" for where, sentence in spec_problems(spec)]
    longest = max(len(part.encode(errors="replace")) for part in spec.command)
    if longest > job_script.MAX_ARGUMENT_BYTES:
        found.append(f"an argument has {longest:,} bytes; Linux accepts {job_script.MAX_ARGUMENT_BYTES:,}")
    if found:
        raise CommandError("; ".join(found), "'corral submit --help' shows all options.")


def flag_of(where: str, spec: JobSpec | None = None) -> str:
    """Return the flag of the JobSpec field `where`, such as --gpus for gpus; empty if the field has no flag.
    For the field `command`, return "the command".

    The fields `after` and `topology` have several flags. With `spec`, return the flag that sets the value
    that the field has in `spec`.
    """
    index = re.fullmatch(r"after\[(\d+)\].*", where)
    if index is not None and spec is not None and int(index[1]) < len(spec.after):
        until = spec.after[int(index[1])].until
        return next(OPTIONS[name].flag for name, each in AFTER.items() if each is until)
    if spec is not None and spec.topology is not None and where.startswith("topology"):
        return {1: "--same", None: "--different"}.get(spec.topology.domains, "--domains")
    if where in FLAG_OF_FIELD:
        return FLAG_OF_FIELD[where]
    field, _, key = where.partition(".")
    field = field.partition("[")[0]
    if field == "env" and key:
        return f"--env {key!r}"
    if field == "command":
        return "the command"
    return FLAG_OF_FIELD.get(field, "")
