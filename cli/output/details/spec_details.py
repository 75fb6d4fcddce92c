"""Lists the requested resources and the options of a job."""

from __future__ import annotations

import shlex
from collections.abc import Callable

from cli.output.details.facts import SHOWN, Facts, pairs_text, text_lines
from cli.output.table_columns import clock, cores
from cli.spec.submit_options.table import OPTIONS
from wire.job.gangs import MemberFailure
from wire.job.spec import JobSpec, gpus_text, qos_class
from wire.job.start_conditions import DEFAULT_RESTART, Restart, RestartWhen
from wire.names import priority_name
from wire.text import counted, decimal, duration, memory, printable


def of_spec(spec: JobSpec) -> Facts:
    """Return the requested resources and options of a job, each with its heading. The options that have a
    `title` in the table of job options come last.
    """
    command = shlex.join(spec.command)
    models = f" of {' or '.join(spec.gpu_models)}" if spec.gpu_models else ""
    return [
        ("name", spec.name),
        ("command", command if len(command) <= SHOWN else command[:SHOWN] + "…"),
        ("directory", spec.workdir or ""),
        ("project", spec.project),
        ("queue", spec.queue),
        ("priority", priority_name(spec.priority)),
        ("relaxes", of_relax(spec)),
        ("gpus", gpus_text(spec.gpus) + models),
        ("of each gpu", str(spec.gpu or "")),
        ("nodes lie in", str(spec.topology or "")),
        ("nodes", str(spec.nodes) if spec.nodes else "as few as the GPUs need"),
        ("gang", _gang(spec)),
        ("tasks", f"{spec.tasks_per_node} per node" * (spec.tasks_per_node > 1)),
        ("cpus", _amount(spec, "cpu_milli", cores, spec.cpu_limit_milli)),
        ("memory", _amount(spec, "memory_mib", memory, spec.memory_limit_mib)),
        ("scratch", f"{memory(spec.scratch_mib)} per node" if spec.scratch_mib else ""),
        ("qos", qos_class(spec)),
        ("only nodes", text_lines(pairs_text(spec.selector), *spec.affinity)),
        ("runs", text_lines(*spec.company)),
        ("licences", text_lines(*(f"{count} of {name}" for name, count in spec.licences.items()))),
        ("environment", pairs_text(spec.env)),
        (
            "logs",
            "stdout and stderr in one log" if spec.merge_output else "stdout and stderr in separate logs",
        ),
        ("runs once", "on the first node" if spec.batch else ""),
        ("begin", clock(spec.begin_at) if spec.begin_at else ""),
        ("deadline", clock(spec.deadline_at) if spec.deadline_at else ""),
        ("after", of_after(spec)),
        (
            "gives up",
            f"after {duration(spec.start_within_s)} without free resources" if spec.start_within_s else "",
        ),
        ("restart", of_restart(spec.restart)),
        ("node lost", _node_lost(spec)),
        ("time limit", duration(spec.time_limit_s) if spec.time_limit_s else "none"),
        ("grace", duration(spec.grace_s)),
        ("saves", _saves(spec)),
        ("preemptible", _preemptible(spec)),
        (
            "warned",
            f"{duration(spec.warn_s)} before the limit, by {spec.warn_signal}" * bool(spec.warn_signal),
        ),
        ("liveness", _liveness(spec)),
        ("held", "yes" if spec.hold else ""),
        *((option.title, text_lines(*option.texts(spec))) for option in OPTIONS.values() if option.title),
    ]


def _liveness(spec: JobSpec) -> str:
    """Return the liveness check in words; empty if the job has none."""
    check = spec.health
    if check is None:
        return ""
    what = check.url or shlex.join(check.command)
    if check.file:
        what = f"{check.file} changes within {duration(check.file_age_s)}"
    when = f"every {decimal(check.every_s)}s, {decimal(check.timeout_s)}s each, not in the first "
    when += f"{decimal(check.start_s)}s"
    return f"{what}\n{when}; after {counted(check.failures, 'failure')}: {check.action.value}"


def _amount(spec: JobSpec, field: str, as_text: Callable[[int], str], limit: int | None) -> str:
    """Return the requested CPUs or memory per node (`field`) as text. Add `limit`, the amount up to which the
    job may use idle resources, and for a default amount its source, such as the queue.
    """
    value, source = getattr(spec, field), spec.by_default.get(field, "")
    if not value:
        return "the default of the cluster"
    default = f" (default: {printable(source)})" if source else ""
    return f"{as_text(value)} per node{_at_most(limit, as_text)}{default}"


def _node_lost(spec: JobSpec) -> str:
    if spec.on_node_lost is None:
        return ""
    lease = f", which is {duration(spec.lease_s)}" * (spec.lease_s is not None)
    return spec.on_node_lost.value + lease


def of_after(spec: JobSpec) -> str:
    """Return the conditions of --after and the other --after-... options, for which the job waits."""
    if not spec.after:
        return ""
    listed = ", ".join(f"{each.until.value} {printable(each.path or each.job)}" for each in spec.after)
    some = "" if spec.after_count is None else f"{spec.after_count} of "
    patience = f"; for {duration(spec.after_within_s)} at most" if spec.after_within_s else ""
    return some + listed + patience


def of_relax(spec: JobSpec) -> str:
    return f"{', '.join(spec.relax)} after {duration(spec.relax_after_s)} in the queue" if spec.relax else ""


def of_restart(restart: Restart) -> str:
    """Return the restart policy in words; empty if the job has the default policy."""
    if restart == DEFAULT_RESTART:
        return ""
    if restart.when is RestartWhen.NEVER:
        return "never"
    times = "any number of times" if restart.limit is None else counted(restart.limit, "time")
    codes = f", only after exit code {', '.join(map(str, restart.codes))}" if restart.codes else ""
    first, most = duration(restart.delay_s), duration(restart.delay_most_s)
    wait = f"{first} to {most}" if restart.delay_most_s > restart.delay_s else first
    return f"{restart.when.value}, {times}, after {wait}{codes}"


def _at_most(limit: int | None, as_text: Callable[[int], str]) -> str:
    return "" if limit is None else f", {as_text(limit)} at most"


def _saves(spec: JobSpec) -> str:
    """Return a text about how the job saves its state before it is stopped; empty if the job does not save
    its state.
    """
    ways = [
        shlex.join(spec.checkpoint_command),
        spec.checkpoint_signal and f"signal {spec.checkpoint_signal}",
    ]
    ways_text = " and ".join(filter(None, ways))
    return f"{ways_text}, within {duration(spec.checkpoint_s)}" if ways_text else ""


def _gang(spec: JobSpec) -> str:
    """Return a text with the gang options of the job, such as the fewest nodes on which it starts and the
    effect of a failed gang member; empty if all have their default values.
    """
    gang, parts = spec.gang, []
    if gang.min_nodes is not None:
        wait = f" after waiting {duration(gang.assembly_s)} for all" if gang.assembly_s else ""
        parts.append(f"starts on {gang.min_nodes} or more{wait}")
    if gang.elastic:
        parts.append("elastic")
    if gang.mixed_models:
        parts.append("GPU models may differ")
    if gang.on_failure is not MemberFailure.FAIL:
        parts.append(
            {MemberFailure.CONTINUE: "continues", MemberFailure.RESTART: "restarts"}[gang.on_failure]
        )
        parts[-1] += " if one gang member fails"
    return "; ".join(parts)


def _preemptible(spec: JobSpec) -> str:
    """Return a text that says when the job may be preempted: "no" for never, empty for always."""
    if not spec.preemptible:
        return "no"
    return f"after {duration(spec.min_runtime_s)}" if spec.min_runtime_s else ""
