"""Everything that can be asked, in one table."""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping

from controller.api import (
    cluster,
    events,
    forecasts,
    hosts,
    jobs,
    licences,
    logs,
    metrics,
    nodes,
    openapi,
    orders,
    profiles,
    quotas,
    rebalancing,
    reports,
    reservations,
    shares,
    shells,
    stream,
    usage,
)
from controller.api.call import Route, choice, flag, whole, word
from controller.api.errors import Rejected
from controller.core.inputs import Refusal
from wire.api.cluster import ClusterView, EventList, Health
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
from wire.api.moves import Rebalanced, RebalanceRequest, RebalanceView
from wire.api.nodes import GpuList, HostKey, NodeAction, NodeList, NodeMarks, NodeRequest, NodeView, Preflight
from wire.api.reports import EstimateReport, StintList, UsageList
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
from wire.words import JobState

MOST = (1 << 62) - 1
PAGE = 1_000

BINARY, EVENTS, JSON = "application/octet-stream", "text/event-stream", "application/json"
LINES = "application/x-ndjson"

AFTER = whole("after", "Go on behind this one.", 0, MOST, 0)
LIMIT = whole("limit", "At most so many.", 1, PAGE, PAGE)

ROUTES = (
    Route("POST", "/v1/jobs", jobs.submit, Submitted, SubmitRequest, status=201, refuses=(413, 422, 507)),
    Route(
        "GET",
        "/v1/jobs",
        jobs.listing,
        JobList,
        query=(
            choice("state", "Only jobs in these states.", tuple(state.value for state in JobState)),
            word("user", "Only jobs of this user."),
            word("profile", "Only jobs of this profile."),
            AFTER,
            LIMIT,
            flag(
                "history",
                "Newest first, and all that ever were; `after` is then the last of the page before.",
            ),
        ),
    ),
    Route("GET", "/v1/jobs/{job}", jobs.show, JobDetail, refuses=(404,)),
    Route("GET", "/v1/jobs/{job}/explain", forecasts.explain, Explanation, refuses=(404,)),
    Route("POST", "/v1/jobs/orders", orders.carry_out, JobsAnswer, JobsOrder, refuses=(404, 409, 413, 507)),
    Route("POST", "/v1/what-if", forecasts.what_if, WhatIfAnswer, WhatIf, refuses=(404, 409, 413, 422)),
    Route("POST", "/v1/jobs/{job}/cancel", jobs.cancel, JobView, refuses=(404, 409, 507)),
    Route("POST", "/v1/jobs/{job}/set", jobs.change, JobView, JobChange, refuses=(404, 409, 413, 422, 507)),
    Route(
        "POST",
        "/v1/jobs/{job}/signal",
        jobs.signal,
        JobView,
        SignalRequest,
        refuses=(404, 409, 413, 422, 503),
    ),
    Route("POST", "/v1/jobs/{job}/hold", jobs.hold, JobView, refuses=(404, 409, 507)),
    Route(
        "POST", "/v1/jobs/{job}/preempt", jobs.preempt, JobView, PreemptAction, refuses=(404, 409, 413, 507)
    ),
    Route("POST", "/v1/jobs/{job}/release", jobs.release, JobView, refuses=(404, 409, 507)),
    Route(
        "GET",
        "/v1/jobs/{job}/logs",
        logs.read,
        BINARY,
        query=(
            choice("stream", "Which of the two.", ("stdout", "stderr"), "stdout"),
            flag("follow", "Go on until the job has ended."),
            whole("offset", "From this byte; negative counts from the end.", -MOST, MOST, 0),
            word("node", "Whose output, of a job on several nodes; the first if left out."),
        ),
        refuses=(404, 409, 503),
    ),
    Route(
        "POST",
        "/v1/jobs/{job}/shells",
        shells.open_one,
        ShellOpened,
        ShellRequest,
        status=201,
        refuses=(404, 409, 413, 422, 503),
    ),
    Route("GET", "/v1/shells/{shell}", shells.read, LINES, refuses=(404, 409)),
    Route(
        "POST",
        "/v1/shells/{shell}/input",
        shells.write,
        ShellOpened,
        ShellGiven,
        refuses=(404, 413, 422),
    ),
    Route("GET", "/v1/nodes", nodes.listing, NodeList),
    Route("GET", "/v1/gpus", nodes.gpus, GpuList),
    Route("POST", "/v1/nodes", hosts.add, NodeView, NodeRequest, status=201, refuses=(409, 413, 507)),
    Route("POST", "/v1/preflight", hosts.preflight, Preflight, NodeRequest, refuses=(404, 409, 413)),
    Route("POST", "/v1/nodes/{node}/trust", hosts.trust, NodeView, HostKey, refuses=(404, 409, 413)),
    Route(
        "POST", "/v1/nodes/{node}/remove", hosts.remove, NodeView, NodeAction, refuses=(404, 409, 413, 507)
    ),
    Route("POST", "/v1/nodes/{node}/lost", hosts.lost, NodeView, NodeAction, refuses=(404, 409, 413, 507)),
    Route("GET", "/v1/nodes/{node}", nodes.show, NodeView, refuses=(404,)),
    Route("POST", "/v1/nodes/{node}/drain", nodes.drain, NodeView, NodeAction, refuses=(404, 507)),
    Route("POST", "/v1/nodes/{node}/resume", nodes.resume, NodeView, NodeAction, refuses=(404, 409, 507)),
    Route("GET", "/v1/quotas", quotas.listing, QuotaList),
    Route("POST", "/v1/quotas/{scope}/{name}/set", quotas.change, QuotaView, QuotaChange, refuses=(413, 507)),
    Route("POST", "/v1/quotas/{scope}/{name}/unset", quotas.unset, QuotaView, refuses=(404, 507)),
    Route("GET", "/v1/licences", licences.listing, LicenceList),
    Route("GET", "/v1/profiles", profiles.listing, ProfileList),
    Route("GET", "/v1/profiles/{profile}", profiles.show, ProfileView, refuses=(404,)),
    Route("GET", "/v1/shares", shares.listing, ShareList),
    Route("POST", "/v1/shares", shares.weigh, ShareList, ShareWeight, refuses=(507,)),
    Route("POST", "/v1/nodes/{node}/marks", nodes.mark, NodeView, NodeMarks, refuses=(404, 422, 507)),
    Route("GET", "/v1/rebalance", rebalancing.show, RebalanceView),
    Route(
        "POST",
        "/v1/rebalance/run",
        rebalancing.run,
        Rebalanced,
        RebalanceRequest,
        refuses=(404, 409, 413, 507),
    ),
    Route("GET", "/v1/reservations", reservations.listing, ReservationList),
    Route(
        "POST",
        "/v1/reservations",
        reservations.reserve,
        ReservationView,
        ReserveRequest,
        status=201,
        refuses=(404, 409, 413, 507),
    ),
    Route("GET", "/v1/reservations/{reservation}", reservations.show, ReservationView, refuses=(404,)),
    Route(
        "POST",
        "/v1/reservations/{reservation}/cancel",
        reservations.cancel,
        ReservationView,
        refuses=(404, 507),
    ),
    Route(
        "POST",
        "/v1/nodes/{node}/gpus/{gpu}/cordon",
        nodes.cordon_gpu,
        NodeView,
        NodeAction,
        refuses=(404, 507),
    ),
    Route(
        "POST",
        "/v1/nodes/{node}/gpus/{gpu}/resume",
        nodes.resume_gpu,
        NodeView,
        NodeAction,
        refuses=(404, 409, 507),
    ),
    Route(
        "GET",
        "/v1/usage",
        usage.show,
        UsageList,
        query=(
            choice("by", "Whose use is added up; users' if left out.", tuple(usage.BY)),
            whole("since", "From this moment on, in seconds since 1970.", 0, MOST, 0),
            whole("until", "Up to this moment; now if left out.", 0, MOST),
        ),
    ),
    Route(
        "GET",
        "/v1/usage/off-queue",
        usage.off_queue,
        StintList,
        query=(
            whole("since", "From this moment on, in seconds since 1970.", 0, MOST, 0),
            whole("until", "Up to this moment; now if left out.", 0, MOST),
        ),
    ),
    Route("GET", "/v1/reports/estimates", reports.estimates, EstimateReport),
    Route("GET", "/v1/cluster", cluster.show, ClusterView),
    Route(
        "GET",
        "/v1/events",
        events.listing,
        EventList,
        query=(AFTER, LIMIT, whole("job", "Only events of this job.", 1, MOST)),
    ),
    Route(
        "GET",
        "/v1/stream",
        stream.follow,
        EVENTS,
        query=(
            whole("after", "Go on behind this entry; from now on if left out.", 0, MOST),
            flag("rows", "With every job and node that changed, as it is afterwards.", True),
        ),
        refuses=(409,),
    ),
    Route("GET", "/metrics", metrics.show, "text/plain"),
    Route("GET", "/v1/health", cluster.health, Health),
    Route("GET", "/v1/openapi.json", openapi.show, JSON),
)

_METHODS: dict[str, dict[str, Route]] = {}
for _route in ROUTES:
    _METHODS.setdefault(_route.path, {})[_route.method] = _route
_FIXED = {path: methods for path, methods in _METHODS.items() if "{" not in path}
_OPEN = {tuple(path.split("/")): methods for path, methods in _METHODS.items() if "{" in path}


def find(method: str, path: str) -> tuple[Route, Mapping[str, str]]:
    """The route of a request, and what stands in the places its path leaves open."""
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
