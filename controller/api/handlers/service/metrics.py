"""GET /metrics: metrics of the controller and of plugins, in the text format of Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from aiohttp import web

from controller.api.handlers.policy.services import service_views
from controller.api.handlers.service.cluster import wait_alarms
from controller.api.handlers.service.reports import budget_views
from controller.api.server.request import Call
from controller.core.accounting.reports import PROJECT, fairness, waste
from controller.core.cluster.nodes import Node
from controller.core.engine import Engine
from controller.core.explain.why_pending import reason_of
from controller.core.pipeline.hooks import Sample
from controller.daemon.daemon import Daemon
from controller.watchers.counters import BOUNDS, ControllerCounters, Histogram
from wire.agent.reports import GpuSample
from wire.names import SHOWN_STATES, WHOLE_GPU, GpuHealth, JobState, NodeState

CONTENT = "text/plain; version=0.0.4; charset=utf-8"
DAY_S = 86_400.0
NO_LABELS: Mapping[str, str] = {}
_LIVE = tuple(state for state in SHOWN_STATES if not state.terminal)


async def show(call: Call) -> web.Response:
    """Show metrics of jobs, nodes, GPUs, scheduling passes, commits and requests, and the metrics of plugins.

    With gpus=1, the answer also contains the measurements of each GPU. On large clusters they are most of the
    answer.
    """
    await call.daemon.settled()
    daemon = call.daemon
    lines = [
        *_families(_cluster(daemon.engine)),
        *_families(_readings(daemon.engine, daemon.agents.readings) if call.query["gpus"] else ()),
        *_families(_estimates(daemon.engine)),
        *_families(_accounting(daemon)),
        *_families(_budgets(daemon.engine, daemon.now())),
        *_families(_services(daemon.engine, daemon.now())),
        *_families(_notifications(daemon)),
        *_families(_plugins(daemon.engine, daemon.now())),
        *_families(_counts(daemon.counters, daemon.seq, daemon.started_at)),
        *_histogram(
            "corral_cycle_seconds",
            "Seconds that a scheduling pass over the queue took.",
            daemon.counters.cycles,
        ),
        *_histogram(
            "corral_commit_seconds", "Seconds that a commit to the store took.", daemon.counters.commits
        ),
    ]
    body = "".join(f"{line}\n" for line in lines)
    return web.Response(body=body.encode("utf-8", "replace"), headers={"Content-Type": CONTENT})


def _cluster(engine: Engine) -> Iterator[Sample]:
    state = engine.state
    jobs = Counter(job.state for job in state.live())
    reasons = Counter(reason_of(state, job).value for job in state.live() if job.state is JobState.QUEUED)
    nodes = Counter(node.state for node in state.nodes)
    gpus = Counter(kind for node in state.nodes for kind in _gpus(node))
    live = {each.value: jobs[each] for each in _LIVE}
    yield from _by("corral_jobs", "Jobs that have not ended, by state.", "state", live)
    about = "Queued jobs, by the reason why they wait."
    yield from _by("corral_queued_jobs", about, "reason", dict(sorted(reasons.items())))
    about = "Waiting jobs that have waited much longer than usual ([scheduler] wait_alarm)."
    yield Sample("corral_wait_alarms", wait_alarms(state), about=about)
    yield from _by(
        "corral_nodes", "Nodes, by state.", "state", {each.value: nodes[each] for each in NodeState}
    )
    about = "GPUs, by state: free, shared, used, away (node not connected), or why they are out of service."
    yield from _by("corral_gpus", about, "state", dict(sorted(gpus.items())))


def _by(name: str, about: str, label: str, counts: Mapping[str, float]) -> Iterator[Sample]:
    """Return one sample of the metric `name` for each key of `counts`, such as each job state. The key
    becomes the value of `label`."""
    return (Sample(name, count, {label: value}, about) for value, count in counts.items())


def _readings(engine: Engine, known: Mapping[str, Mapping[str, GpuSample]]) -> Iterator[Sample]:
    """Yield the latest measurements of each GPU on connected nodes, and for every GPU whether it can get
    jobs (1 or 0)."""
    for node in engine.state.nodes:
        samples = known.get(node.name, {}) if node.up else {}
        for gpu in node.facts.gpus:
            labels = {"node": node.name, "gpu": gpu.number, "uuid": gpu.uuid}
            well = node.health_of(gpu) is GpuHealth.OK
            yield Sample("corral_gpu_healthy", well, labels, "1 if the GPU can get jobs, else 0.")
            sample = samples.get(gpu.uuid)
            if sample is None:
                continue
            used, errors = sample.memory_used_mib << 20, sample.ecc_uncorrected
            yield Sample(
                "corral_gpu_utilisation_percent", sample.utilisation, labels, "Utilisation of the GPU."
            )
            yield Sample("corral_gpu_memory_used_bytes", used, labels, "GPU memory in use.")
            yield Sample(
                "corral_gpu_temperature_celsius", sample.temperature_c, labels, "Temperature of the GPU."
            )
            yield Sample("corral_gpu_power_watts", sample.power_w, labels, "Power draw of the GPU.")
            yield Sample(
                "corral_gpu_ecc_uncorrected_total",
                errors,
                labels,
                "Uncorrected ECC errors since the driver was loaded.",
                "counter",
            )


def _estimates(engine: Engine) -> Iterator[Sample]:
    """Yield how many run times and start times were estimated, and the sums of the estimates' errors. A
    monitoring system can compute the mean errors from them."""
    known = engine.state.estimates
    for user, run in sorted(known.scores.items()):
        figures = run.jobs, run.bias_s, run.error_s, run.outlived
        yield from _errors("run", {"user": user}, "Run times of ended jobs that had been predicted", *figures)
    for kind, start in sorted(known.starts.items()):
        figures = start.count, start.bias_s, start.error_s, start.late
        yield from _errors("start", {"kind": kind}, "Starts of jobs that had been estimated", *figures)


def _budgets(engine: Engine, now: float) -> Iterator[Sample]:
    """Yield what each project with a budget has used in the present month: GPU-hours, money, and percent of
    the budget."""
    for each in budget_views(engine.state, now):
        labels = {"project": each.project}
        about = "Used part of the project's budget for the present month, in percent."
        yield Sample("corral_budget_used_percent", each.percent, labels, about)
        about = "GPU-hours that the project has used in the present month."
        yield Sample("corral_budget_gpu_hours", each.gpu_hours, labels, about)
        about = "Money that the project has used in the present month."
        yield Sample("corral_budget_money", each.money, labels, about)


def _accounting(daemon: Daemon) -> Iterator[Sample]:
    """Yield the GPU-hours of each project in the last day, and the idle and lost GPU-hours by cause."""
    now = daemon.now()
    daemon.accounting.close_until(daemon.engine, now)
    periods, since = daemon.accounting.periods, now - DAY_S
    for each in fairness(periods, daemon.state, PROJECT, since, now).rows:
        for kind, hours in (("got", each.got), ("entitled", each.entitled), ("demanded", each.demanded)):
            about = "GPU-hours of each project in the last day: got, entitled by max-min fairness, demanded."
            yield Sample("corral_project_gpu_hours", hours, {"project": each.name, "kind": kind}, about)
        about = "GPU-hours got minus entitled in the last day, in percent of the capacity."
        yield Sample("corral_project_fairness_points", each.points, {"project": each.name}, about)
        about = "Seconds that the job of the project that has waited longest has waited."
        yield Sample(
            "corral_project_longest_wait_seconds", each.longest_waiting_s, {"project": each.name}, about
        )
    found = waste(periods, since, now)
    for name, about, causes in (
        ("corral_idle_gpu_hours", "Idle GPU-hours of the last day, by cause.", found.idle),
        ("corral_lost_gpu_hours", "GPU-hours of unsaved work in the last day, by cause.", found.lost),
    ):
        yield from _by(name, about, "cause", {each.cause: each.gpu_hours for each in causes})


def _services(engine: Engine, now: float) -> Iterator[Sample]:
    """Yield for each service how many replicas must run, and how many are ready."""
    for view in service_views(engine, now):
        labels = {"service": view.name}
        yield Sample("corral_service_replicas_wanted", view.wanted, labels, "Replicas that must run.")
        yield Sample("corral_service_replicas_ready", view.ready, labels, "Replicas that are ready.")


def _notifications(daemon: Daemon) -> Iterator[Sample]:
    """Yield for each sink of notifications how many messages wait, were given up, delivered and failed."""
    notifier = daemon.notifier
    for sink in daemon.config.notify.sinks:
        labels, (waiting, dead) = {"sink": sink}, notifier.outbox.count(sink)
        yield Sample("corral_notify_waiting", waiting, labels, "Messages that wait for their delivery.")
        yield Sample("corral_notify_dead", dead, labels, "Messages that were given up (dead letters).")
        about = "Messages that the sink has accepted."
        yield _counter("corral_notify_delivered_total", notifier.delivery.delivered[sink], about, labels)
        about = "Tries to send a message that have failed."
        yield _counter("corral_notify_failed_total", notifier.delivery.failed[sink], about, labels)
    about = "Notices that were dropped, because the outbox was full."
    yield _counter("corral_notify_dropped_total", notifier.dropped, about)


def _errors(
    what: str, labels: Mapping[str, str], about: str, count: int, bias_s: float, error_s: float, late: int
) -> Iterator[Sample]:
    name = f"corral_{what}_estimate"
    difference, errors = "sum of actual minus estimated time", "sum of the absolute errors"
    yield _counter(f"{name}s_total", count, f"{about}: number.", labels)
    yield Sample(f"{name}_bias_seconds", bias_s, labels, f"{about}: {difference}.")
    yield _counter(f"{name}_error_seconds_total", error_s, f"{about}: {errors}.", labels)
    yield _counter(f"{name}s_late_total", late, f"{about}: number that came later than estimated.", labels)


def _counter(name: str, value: float, about: str, labels: Mapping[str, str] = NO_LABELS) -> Sample:
    return Sample(name, value, labels, about, "counter")


def _gpus(node: Node) -> Iterator[str]:
    """Yield the state of each GPU of a node: free, shared, used, away (the node is not connected), or the
    health state of an unhealthy GPU."""
    used: Counter[str] = Counter()
    for allocation in node.held.values():
        used.update({hold.uuid: hold.milli for hold in allocation.gpus})
    for gpu in node.facts.gpus:
        health = node.health_of(gpu)
        if not node.up:
            yield "away"
        elif health is not GpuHealth.OK:
            yield health.value
        else:
            milli = used[gpu.uuid]
            yield "used" if milli >= WHOLE_GPU else "shared" if milli else "free"


def _counts(counters: ControllerCounters, seq: int, started_at: float) -> Iterator[Sample]:
    about = "Time at which the controller started, in seconds since 1970."
    yield Sample("corral_start_time_seconds", started_at, about=about)
    yield Sample("corral_journal_seq", seq, about="Sequence number of the last journal entry.")
    about = "Journal entries written since the controller started."
    yield _counter("corral_journal_entries_total", counters.entries, about)
    about = "Failed attempts on a node since the controller started, by failure class."
    for name, count in sorted(counters.failures.items()):
        yield _counter("corral_failed_attempts_total", count, about, {"class": name})
    about = "Requests to the API, by method, path and status."
    for (method, path, status), count in sorted(counters.requests.items()):
        labels = {"method": method, "path": path, "status": str(status)}
        yield _counter("corral_requests_total", count, about, labels)


def _plugins(engine: Engine, now: float) -> Iterator[Sample]:
    """Yield the metrics of plugins, and the number of scheduling passes in which each plugin failed."""
    for plugin in engine.pipeline.metrics:
        yield from plugin.collect(engine.state, now)
    about = "Scheduling passes in which a plugin failed."
    for (kind, name), times in sorted(engine.pipeline.breaker.times().items()):
        yield _counter("corral_plugin_failures_total", times, about, {"kind": kind, "plugin": name})


def _families(samples: Iterable[Sample]) -> Iterator[str]:
    """Yield the metric samples as lines of text, grouped by metric. If several samples have the same name and
    labels, only the first one is yielded.
    """
    families: dict[str, dict[str, Sample]] = {}
    for sample in samples:
        families.setdefault(sample.name, {}).setdefault(_labels(sample.labels), sample)
    for name, family in families.items():
        first = next(iter(family.values()))
        yield from _head(name, first.about, first.kind)
        for labels, sample in family.items():
            yield f"{name}{labels} {_number(sample.value)}"


def _histogram(name: str, about: str, histogram: Histogram) -> Iterator[str]:
    yield from _head(name, about, "histogram")
    below = 0
    for bound, count in zip((*map(_number, BOUNDS), "+Inf"), histogram.counts, strict=True):
        below += count
        yield f'{name}_bucket{{le="{bound}"}} {below}'
    yield f"{name}_sum {_number(histogram.total_s)}"
    yield f"{name}_count {below}"


def _head(name: str, about: str, kind: str) -> Iterator[str]:
    if about:
        yield f"# HELP {name} {_escaped(about)}"
    yield f"# TYPE {name} {kind}"


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    quoted = (
        f'{key}="{_escaped(str(value)).replace(chr(34), chr(92) + chr(34))}"' for key, value in labels.items()
    )
    return f"{{{','.join(quoted)}}}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _number(value: float) -> str:
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) else repr(float(value))
