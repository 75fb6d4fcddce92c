"""The table of all routes."""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping

from controller.api.handlers.jobs import bulk_orders, exec_sessions, forecasts, jobs, logs
from controller.api.handlers.nodes import hosts, nodes
from controller.api.handlers.policy import licences, profiles, quotas, rebalance, reservations, shares
from controller.api.handlers.service import cluster, config, events, metrics, reports, store, usage
from controller.api.server import event_stream, openapi
from controller.api.server.access import (
    ANYONE,
    CANCEL,
    CHANGE_JOBS,
    EXEC,
    HOLD,
    PREEMPT,
    READ_OUTPUT,
    RELEASE,
    REQUEUE,
    SET,
    SIGNAL,
    SUBMIT,
    USE_SHELL,
    operator,
)
from controller.api.server.errors import Rejected
from controller.api.server.request import Route, choice, flag, integer, seconds, string
from controller.core.model.inputs import Refusal
from wire.api.cluster import ClusterView, EventList, Health
from wire.api.config import ConfigAnswer, ConfigRequest, ConfigView
from wire.api.forecasts import Explanation, WhatIf, WhatIfAnswer
from wire.api.jobs import (
    JobChange,
    JobDetail,
    JobList,
    JobsAnswer,
    JobsOrder,
    JobView,
    PreemptAction,
    ShellGiven,
    ShellOpened,
    ShellRequest,
    SignalRequest,
    SubmitRequest,
    Submitted,
)
from wire.api.nodes import GpuList, HostKey, NodeAction, NodeList, NodeMarks, NodeRequest, NodeView, Preflight
from wire.api.rebalance import Rebalanced, RebalanceRequest, RebalanceView
from wire.api.reports import EstimateReport, StintList, UsageList
from wire.api.store import Compacted, CompactRequest
from wire.api.tenants import (
    LicenceList,
    ProfileList,
    ProfileView,
    QuotaChange,
    QuotaList,
    QuotaView,
    ReservationList,
    ReservationView,
    ReserveRequest,
    ShareList,
    ShareWeight,
)
from wire.job.spec import JobSpec
from wire.names import JobState

MOST = (1 << 62) - 1
PAGE = 1_000

BINARY, EVENTS, JSON = "application/octet-stream", "text/event-stream", "application/json"
LINES = "application/x-ndjson"

AFTER = integer("after", "Return only what comes after this number.", 0, MOST, 0)
WINDOW = (
    integer("since", "Begin of the window, in seconds since 1970; default: a week before `until`.", 0, MOST),
    integer("until", "End of the window, in seconds since 1970; default: now.", 0, MOST),
)
LIMIT = integer("limit", "The most results to return.", 1, PAGE, PAGE)

WITHIN = seconds(
    "within",
    "Seconds for the answer, up to [questions] longest_s; default: budget_s.",
    0.1,
    600,
)
PART = choice(
    "part",
    "`first`: the next 24 hours and the first 200 jobs are enough; `all`: as much as there is time for.",
    ("first", "all"),
    "all",
)

ROUTES = (
    Route(
        "POST", "/v1/jobs", SUBMIT, jobs.submit, Submitted, SubmitRequest, status=201, refuses=(413, 422, 507)
    ),
    Route("POST", "/v1/jobs/preview", SUBMIT, jobs.preview, JobSpec, SubmitRequest, refuses=(413, 422)),
    Route(
        "GET",
        "/v1/jobs",
        ANYONE,
        jobs.listing,
        JobList,
        query=(
            choice(
                "state",
                "Only jobs in these states. Preempted jobs are QUEUED again.",
                tuple(state.value for state in JobState),
            ),
            string("user", "Only jobs of this user."),
            string("profile", "Only jobs of this profile."),
            AFTER,
            LIMIT,
            flag(
                "history",
                "All jobs in the store, newest first; `after` is the last job of the page before.",
            ),
        ),
    ),
    Route("GET", "/v1/jobs/{job}", ANYONE, jobs.show, JobDetail, refuses=(404,)),
    Route(
        "GET",
        "/v1/jobs/{job}/explain",
        ANYONE,
        forecasts.explain,
        Explanation,
        query=(WITHIN,),
        refuses=(404, 503),
    ),
    Route(
        "POST",
        "/v1/jobs/orders",
        CHANGE_JOBS,
        bulk_orders.carry_out,
        JobsAnswer,
        JobsOrder,
        refuses=(404, 409, 413, 507),
    ),
    Route(
        "POST",
        "/v1/what-if",
        ANYONE,
        forecasts.what_if,
        WhatIfAnswer,
        WhatIf,
        query=(WITHIN, PART),
        refuses=(404, 413, 422, 503),
    ),
    Route("POST", "/v1/jobs/{job}/cancel", CANCEL, jobs.cancel, JobView, refuses=(404, 409, 507)),
    Route(
        "POST", "/v1/jobs/{job}/set", SET, jobs.change, JobView, JobChange, refuses=(404, 409, 413, 422, 507)
    ),
    Route(
        "POST",
        "/v1/jobs/{job}/signal",
        SIGNAL,
        jobs.signal,
        JobView,
        SignalRequest,
        refuses=(404, 409, 413, 422, 503),
    ),
    Route("POST", "/v1/jobs/{job}/hold", HOLD, jobs.hold, JobView, refuses=(404, 409, 507)),
    Route(
        "POST",
        "/v1/jobs/{job}/preempt",
        PREEMPT,
        jobs.preempt,
        JobView,
        PreemptAction,
        refuses=(404, 409, 413, 507),
    ),
    Route("POST", "/v1/jobs/{job}/requeue", REQUEUE, jobs.requeue, JobView, refuses=(404, 409, 507)),
    Route("POST", "/v1/jobs/{job}/release", RELEASE, jobs.release, JobView, refuses=(404, 409, 507)),
    Route(
        "GET",
        "/v1/jobs/{job}/logs",
        READ_OUTPUT,
        logs.read,
        BINARY,
        query=(
            choice(
                "stream",
                "stdout or stderr. A job with merge_output has both in stdout.",
                ("stdout", "stderr"),
                "stdout",
            ),
            flag("follow", "Follow the output until the job has ended."),
            integer("offset", "Begin at this byte; a negative offset counts from the end.", -MOST, MOST, 0),
            string("node", "The node whose output is read; default: the first node of the job."),
            integer("attempt", "The attempt; default and 0: the last one.", 0, MOST, 0),
        ),
        refuses=(404, 409, 503),
    ),
    Route(
        "POST",
        "/v1/jobs/{job}/shells",
        EXEC,
        exec_sessions.open_one,
        ShellOpened,
        ShellRequest,
        status=201,
        refuses=(404, 409, 413, 422, 503),
    ),
    Route("GET", "/v1/shells/{shell}", USE_SHELL, exec_sessions.read, LINES, refuses=(404, 409)),
    Route(
        "POST",
        "/v1/shells/{shell}/input",
        USE_SHELL,
        exec_sessions.write,
        ShellOpened,
        ShellGiven,
        refuses=(404, 413, 422),
    ),
    Route("GET", "/v1/nodes", ANYONE, nodes.listing, NodeList),
    Route("GET", "/v1/gpus", ANYONE, nodes.gpus, GpuList),
    Route(
        "POST",
        "/v1/nodes",
        operator("add nodes"),
        hosts.add,
        NodeView,
        NodeRequest,
        status=201,
        refuses=(409, 413, 507),
    ),
    Route(
        "POST",
        "/v1/preflight",
        operator("look at hosts"),
        hosts.preflight,
        Preflight,
        NodeRequest,
        refuses=(404, 409, 413),
    ),
    Route(
        "POST",
        "/v1/nodes/{node}/trust",
        operator("trust host keys"),
        hosts.trust,
        NodeView,
        HostKey,
        refuses=(404, 409, 413),
    ),
    Route(
        "POST",
        "/v1/nodes/{node}/remove",
        operator("remove nodes"),
        hosts.remove,
        NodeView,
        NodeAction,
        refuses=(404, 409, 413, 507),
    ),
    Route(
        "POST",
        "/v1/nodes/{node}/lost",
        operator("declare nodes lost"),
        hosts.lost,
        NodeView,
        NodeAction,
        refuses=(404, 409, 413, 507),
    ),
    Route("GET", "/v1/nodes/{node}", ANYONE, nodes.show, NodeView, refuses=(404,)),
    Route(
        "POST",
        "/v1/nodes/{node}/drain",
        operator("drain nodes"),
        nodes.drain,
        NodeView,
        NodeAction,
        refuses=(404, 507),
    ),
    Route(
        "POST",
        "/v1/nodes/{node}/resume",
        operator("resume nodes"),
        nodes.resume,
        NodeView,
        NodeAction,
        refuses=(404, 409, 507),
    ),
    Route("GET", "/v1/quotas", ANYONE, quotas.listing, QuotaList),
    Route(
        "POST",
        "/v1/quotas/{scope}/{name}/set",
        operator("set quotas"),
        quotas.change,
        QuotaView,
        QuotaChange,
        refuses=(413, 507),
    ),
    Route(
        "POST",
        "/v1/quotas/{scope}/{name}/unset",
        operator("unset quotas"),
        quotas.unset,
        QuotaView,
        refuses=(404, 507),
    ),
    Route("GET", "/v1/licences", ANYONE, licences.listing, LicenceList),
    Route("GET", "/v1/profiles", ANYONE, profiles.listing, ProfileList),
    Route("GET", "/v1/profiles/{profile}", ANYONE, profiles.show, ProfileView, refuses=(404,)),
    Route("GET", "/v1/shares", ANYONE, shares.listing, ShareList),
    Route(
        "POST", "/v1/shares", operator("change shares"), shares.weigh, ShareList, ShareWeight, refuses=(507,)
    ),
    Route(
        "POST",
        "/v1/nodes/{node}/marks",
        operator("label and taint nodes"),
        nodes.mark,
        NodeView,
        NodeMarks,
        refuses=(404, 422, 507),
    ),
    Route("GET", "/v1/config", ANYONE, config.show, ConfigView),
    Route(
        "POST",
        "/v1/config",
        operator("apply a configuration"),
        config.apply,
        ConfigAnswer,
        ConfigRequest,
        refuses=(404, 409, 413, 507),
    ),
    Route("GET", "/v1/rebalance", ANYONE, rebalance.show, RebalanceView),
    Route(
        "POST",
        "/v1/rebalance/run",
        operator("move jobs"),
        rebalance.run,
        Rebalanced,
        RebalanceRequest,
        refuses=(404, 409, 413, 507),
    ),
    Route("GET", "/v1/reservations", ANYONE, reservations.listing, ReservationList),
    Route(
        "POST",
        "/v1/reservations",
        operator("make reservations"),
        reservations.reserve,
        ReservationView,
        ReserveRequest,
        status=201,
        refuses=(404, 409, 413, 507),
    ),
    Route(
        "GET", "/v1/reservations/{reservation}", ANYONE, reservations.show, ReservationView, refuses=(404,)
    ),
    Route(
        "POST",
        "/v1/reservations/{reservation}/cancel",
        operator("cancel reservations"),
        reservations.cancel,
        ReservationView,
        refuses=(404, 507),
    ),
    Route(
        "POST",
        "/v1/nodes/{node}/gpus/{gpu}/cordon",
        operator("cordon GPUs"),
        nodes.cordon_gpu,
        NodeView,
        NodeAction,
        refuses=(404, 507),
    ),
    Route(
        "POST",
        "/v1/nodes/{node}/gpus/{gpu}/resume",
        operator("resume GPUs"),
        nodes.resume_gpu,
        NodeView,
        NodeAction,
        refuses=(404, 409, 507),
    ),
    Route(
        "GET",
        "/v1/usage",
        ANYONE,
        usage.show,
        UsageList,
        query=(
            choice("by", "The groups of the report; default: user.", usage.BY),
            *WINDOW,
            integer(
                "limit", "The most lines in the answer, those with the most GPU-hours.", 1, 10_000, 1_000
            ),
        ),
    ),
    Route(
        "GET",
        "/v1/usage/off-queue",
        ANYONE,
        usage.off_queue,
        StintList,
        query=(*WINDOW,),
    ),
    Route("GET", "/v1/reports/estimates", ANYONE, reports.estimates, EstimateReport),
    Route("GET", "/v1/cluster", ANYONE, cluster.show, ClusterView),
    Route(
        "GET",
        "/v1/events",
        ANYONE,
        events.listing,
        EventList,
        query=(AFTER, LIMIT, integer("job", "Only events of this job.", 1, MOST)),
    ),
    Route(
        "GET",
        "/v1/stream",
        ANYONE,
        event_stream.follow,
        EVENTS,
        query=(
            integer("after", "Send the commits after this entry; default: from now on.", 0, MOST),
            flag("rows", "1: also send every changed job and node, as it is afterwards.", True),
        ),
        refuses=(409,),
    ),
    Route("GET", "/v1/store/verify", store.VERIFY, store.verify, LINES),
    Route(
        "POST",
        "/v1/store/compact",
        store.COMPACT,
        store.compact,
        Compacted,
        CompactRequest,
        refuses=(413, 507),
    ),
    Route("GET", "/metrics", ANYONE, metrics.show, "text/plain"),
    Route("GET", "/v1/health", ANYONE, cluster.health, Health),
    Route("GET", "/v1/openapi.json", ANYONE, openapi.show, JSON),
)

_METHODS: dict[str, dict[str, Route]] = {}
for _route in ROUTES:
    _METHODS.setdefault(_route.path, {})[_route.method] = _route
_FIXED = {path: methods for path, methods in _METHODS.items() if "{" not in path}
_OPEN = {tuple(path.split("/")): methods for path, methods in _METHODS.items() if "{" in path}


def find(method: str, path: str) -> tuple[Route, Mapping[str, str]]:
    """The route of a request, and the values of the placeholders in its path."""
    fixed = _FIXED.get(path)
    methods, filled = (fixed, {}) if fixed is not None else _find_open(path.split("/"))
    route = methods.get(method)
    if route is None:
        allowed = ", ".join(sorted(methods))
        message = f"{method} is not what this takes, but {allowed}"
        raise Rejected(
            Refusal("no_such_method", message, hint="See /v1/openapi.json."), headers={"Allow": allowed}
        )
    return route, filled


def _find_open(parts: list[str]) -> tuple[dict[str, Route], dict[str, str]]:
    for shape, methods in _OPEN.items():
        if len(shape) == len(parts) and all(
            each.startswith("{") or each == part for each, part in zip(shape, parts, strict=True)
        ):
            names = ((each[1:-1], part) for each, part in zip(shape, parts, strict=True) if each[:1] == "{")
            return methods, {name: urllib.parse.unquote(part) for name, part in names}
    raise Rejected(
        Refusal("not_found", f"there is nothing at {'/'.join(parts)}", hint="See /v1/openapi.json.")
    )
