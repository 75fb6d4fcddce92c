"""What the controller does, as figures in the text format of Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from aiohttp import web

from controller.api.call import Call
from controller.core.engine import Engine
from controller.core.explain import reason_of
from controller.core.nodes import Node
from controller.core.outlets import Sample
from controller.tally import BOUNDS, Spread, Tally
from wire.words import WHOLE_GPU, GpuHealth, JobState, NodeState

CONTENT = "text/plain; version=0.0.4; charset=utf-8"
_LIVE = (JobState.QUEUED, JobState.SCHEDULED, JobState.RUNNING, JobState.PREEMPTED)


async def show(call: Call) -> web.Response:
    """Figures about jobs, nodes, GPUs, cycles, commits and requests, and those of plugins."""
    await call.daemon.settled()
    daemon = call.daemon
    lines = [
        *_families(_cluster(daemon.engine)),
        *_families(_estimates(daemon.engine)),
        *_families(_plugins(daemon.engine, daemon.now())),
        *_families(_counts(daemon.tally, daemon.seq, daemon.started_at)),
        *_spread("corral_cycle_seconds", "How long passes over the queue took.", daemon.tally.cycles),
        *_spread("corral_commit_seconds", "How long commits to the store took.", daemon.tally.commits),
    ]
    body = "".join(f"{line}\n" for line in lines)
    return web.Response(body=body.encode("utf-8", "replace"), headers={"Content-Type": CONTENT})


def _cluster(engine: Engine) -> Iterator[Sample]:
    state = engine.state
    states: Counter[JobState] = Counter()
    reasons: Counter[str] = Counter()
    for job in state.live():
        states[job.state] += 1
        if job.state is JobState.QUEUED:
            reasons[reason_of(state, job).value] += 1
    for each in _LIVE:
        yield Sample("corral_jobs", states[each], {"state": each.value}, "Jobs that have not ended.")
    for reason, count in sorted(reasons.items()):
        yield Sample("corral_queued_jobs", count, {"reason": reason}, "Jobs that wait, by what for.")
    nodes = Counter(node.state for node in state.nodes)
    for kind in NodeState:
        yield Sample("corral_nodes", nodes[kind], {"state": kind.value}, "Nodes.")
    gpus: Counter[str] = Counter()
    for node in state.nodes:
        gpus.update(_gpus(node))
    for what, count in sorted(gpus.items()):
        yield Sample(
            "corral_gpus", count, {"state": what}, "GPUs: free, used in part or whole, away, or sick."
        )


def _estimates(engine: Engine) -> Iterator[Sample]:
    """Sums, from which monitoring works out means over windows of its own."""
    known = engine.state.estimates
    for user, run in sorted(known.scores.items()):
        figures = run.jobs, run.bias_s, run.error_s, run.outlived
        yield from _errors("run", {"user": user}, "Run times that had been predicted", figures)
    for kind, start in sorted(known.starts.items()):
        figures = start.count, start.bias_s, start.error_s, start.late
        yield from _errors("start", {"kind": kind}, "Starts that had been foretold", figures)


def _errors(
    what: str, labels: Mapping[str, str], about: str, figures: tuple[int, float, float, int]
) -> Iterator[Sample]:
    count, bias, error, late = figures
    name = f"corral_{what}_estimate"
    yield Sample(f"{name}s_total", count, labels, f"{about}.", "counter")
    yield Sample(f"{name}_bias_seconds", bias, labels, f"{about}: what came less what was said.")
    yield Sample(f"{name}_error_seconds_total", error, labels, f"{about}: that without sign.", "counter")
    yield Sample(f"{name}s_late_total", late, labels, f"{about}: more than was said.", "counter")


def _gpus(node: Node) -> Iterator[str]:
    """What each GPU of a node does."""
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


def _counts(tally: Tally, seq: int, started_at: float) -> Iterator[Sample]:
    yield Sample("corral_start_time_seconds", started_at, about="When the controller started, since 1970.")
    yield Sample("corral_journal_seq", seq, about="Number of the last entry of the journal.")
    yield Sample(
        "corral_journal_entries_total", tally.entries, {}, "Entries written since the start.", "counter"
    )
    for (method, path, status), count in sorted(tally.requests.items()):
        labels = {"method": method, "path": path, "status": str(status)}
        yield Sample("corral_requests_total", count, labels, "Requests to the API.", "counter")


def _plugins(engine: Engine, now: float) -> Iterator[Sample]:
    """What plugins tell, and how often any of them failed."""
    for plugin in engine.pipeline.metrics:
        yield from plugin.collect(engine.state, now)
    for (kind, name), times in sorted(engine.pipeline.watch.times().items()):
        labels = {"kind": kind, "plugin": name}
        yield Sample(
            "corral_plugin_failures_total", times, labels, "Cycles in which a plugin failed.", "counter"
        )


def _families(samples: Iterable[Sample]) -> Iterator[str]:
    """The samples by name, each name with what it means; the first of two alike counts."""
    families: dict[str, dict[str, Sample]] = {}
    for sample in samples:
        families.setdefault(sample.name, {}).setdefault(_labels(sample.labels), sample)
    for name, family in families.items():
        first = next(iter(family.values()))
        yield from _head(name, first.about, first.kind)
        for labels, sample in family.items():
            yield f"{name}{labels} {_number(sample.value)}"


def _spread(name: str, about: str, spread: Spread) -> Iterator[str]:
    yield from _head(name, about, "histogram")
    below = 0
    for bound, count in zip((*map(_number, BOUNDS), "+Inf"), spread.counts, strict=True):
        below += count
        yield f'{name}_bucket{{le="{bound}"}} {below}'
    yield f"{name}_sum {_number(spread.total_s)}"
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
