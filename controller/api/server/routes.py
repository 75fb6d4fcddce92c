"""The table of all routes, and the function that finds the route of a request."""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping
from dataclasses import replace

from controller.api.handlers.access import audit, certificate_authority, login, tokens
from controller.api.handlers.jobs import (
    bulk_orders,
    exec_sessions,
    forecasts,
    job_table,
    jobs,
    logs,
    sbatch,
    workloads,
)
from controller.api.handlers.nodes import engines, hosts, nodes
from controller.api.handlers.policy import (
    licences,
    policy,
    profiles,
    projects,
    queues,
    quotas,
    rebalance,
    reservations,
    scheduler,
    services,
    shares,
)
from controller.api.handlers.service import (
    cluster,
    config,
    controllers,
    events,
    metrics,
    month,
    notify,
    pulse,
    reports,
    store,
    usage,
)
from controller.api.server import event_stream, openapi
from controller.api.server.access import (
    ANYONE,
    CANCEL,
    CHANGE_JOBS,
    CHECKPOINT,
    EXEC,
    HOLD,
    KEEP,
    LIST_TOKENS,
    NOTIFY_ME,
    PREEMPT,
    PREVIEW,
    PUBLIC,
    READ_OUTPUT,
    RELEASE,
    REQUEUE,
    SET,
    SIGNAL,
    SUBMIT,
    TOKENS,
    USE_SHELL,
    admin,
    operator,
)
from controller.api.server.errors import rejected
from controller.api.server.request import Route, choice, flag, integer, seconds, string, strings
from wire.api.job_table import JOB_COLUMNS
from wire.cluster.quota import SCOPES
from wire.names import JobState

MOST = (1 << 62) - 1
PAGE = 1_000

AFTER = integer("after", "Return only results with a number above this one.", 0, MOST, 0)
LIMIT = integer("limit", "The most results to return.", 1, PAGE, PAGE)
SINCE = integer(
    "since", "Begin of the window, in seconds since 1970; default: a week before `until`.", 0, MOST
)
UNTIL = integer("until", "End of the window, in seconds since 1970; default: now.", 0, MOST)
WITHIN = seconds(
    "within", "Seconds for the answer, up to [questions] longest_s; default: budget_s.", 0.1, 600
)
HORIZON = seconds(
    "horizon", "Seconds from now that the plan covers; default: 86400.", 60, 2_592_000, 86_400.0
)
PART = choice(
    "part",
    "`first`: stop when the next 24 hours and the first 200 jobs are known; `all`: use all of the time.",
    ("first", "all"),
    "all",
)
JOB_FILTER = (
    choice(
        "state",
        "Only jobs in these states. Preempted jobs are QUEUED again.",
        tuple(state.value for state in JobState),
    ),
    string("user", "Only jobs of this user."),
    string("profile", "Only jobs of this profile."),
    AFTER,
    LIMIT,
    flag("history", "1: all jobs in the store, newest first; `after` is the last job of the page before."),
    flag(
        "folded", "1: one row for each workload and array, in `groups` of the first page. Not with history."
    ),
    flag("places", "1: places in the queue and expected starts, in `places` of the first page."),
)
JOB_TABLE = (
    replace(choice("column", "The columns of the table, in this order.", tuple(JOB_COLUMNS)), required=True),
    strings("job", "Only these jobs and arrays, such as 7, 7_3 or 7_[0-9], ended or not."),
    strings("user", "Only jobs of these users."),
    strings("queue", "Only jobs of these queues."),
    strings("project", "Only jobs of these projects."),
    strings("label", "Only jobs with all these labels, each as KEY=VALUE."),
    integer("since", "Also jobs that ended at this time (seconds since 1970) or later.", 0, MOST),
    integer("until", "Only jobs that were submitted by this time, in seconds since 1970.", 0, MOST),
)
WORKLOADS = (
    string("user", "Only workloads of this user."),
    flag("all", "1: also workloads whose jobs have all ended."),
    AFTER,
    LIMIT,
)
LOG = (
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
)
LOG_SEARCH = (
    replace(string("text", "The text to find. Not a regular expression."), required=True),
    LOG[0],
    integer("offset", "The byte at which the search begins; -1: the end.", -1, MOST, 0),
    flag("back", "1: search towards the beginning of the output."),
    *LOG[3:],
)
OF_JOBS = (
    string("project", "Only jobs of this project."),
    string("user", "Only jobs of this user."),
    string("queue", "Only jobs of this queue."),
)
USAGE = (
    choice("by", "The groups of the report; default: user.", usage.BY),
    SINCE,
    UNTIL,
    integer(
        "limit", "The most lines in the answer; lines with the most GPU-hours come first.", 1, 10_000, 1_000
    ),
    *OF_JOBS,
)
MONTH = (
    string("month", "The month, such as 2026-11; default: the present month."),
    choice("by", "One row for each project, user or queue; default: project.", month.BY),
    *OF_JOBS,
)
FAIRNESS = (choice("by", "One row for each project or user; default: project.", reports.BY), SINCE)
STREAM = (
    integer("after", "Send the commits after this entry; default: from now on.", 0, MOST),
    flag("rows", "1: also send every changed job and node in its new state.", True),
    flag("pulse", "1: also send a sample of the cluster's figures every second."),
)
PULSE = (
    choice(
        "ring",
        "`seconds`: samples of the last 600 seconds; `minutes`: the means of the last 1440 minutes.",
        pulse.RINGS,
        "minutes",
    ),
    integer("after", "Only samples after this time, in seconds since 1970.", 0, MOST),
)
GPU_LOADS = (
    strings("node", "The GPUs of these nodes."),
    replace(integer("job", "The mean over the GPUs of these jobs, by id.", 1, MOST), many=True),
    integer("points", "The number of parts into which the 10 minutes are divided.", 1, 60, 8),
)
POLICY = (
    choice("scope", "The kind of `name`; default: the whole cluster.", ("cluster", *SCOPES), "cluster"),
    string("name", "The name of the user, project or queue."),
)
EVENTS = (AFTER, LIMIT, integer("job", "Only events of this job.", 1, MOST))
GPU_READINGS = flag("gpus", "1: also the measurements of each GPU.")

BINARY, LINES = "application/octet-stream", "application/x-ndjson"

ROUTES = (
    Route("POST", "/v1/jobs", SUBMIT, jobs.submit, status=201, refuses=(422, 507)),
    Route("POST", "/v1/jobs/preview", PREVIEW, jobs.preview, refuses=(422,)),
    Route("GET", "/v1/jobs", ANYONE, jobs.listing, query=JOB_FILTER),
    Route("GET", "/v1/job-table", ANYONE, job_table.table, query=JOB_TABLE),
    Route("GET", "/v1/jobs/{job}", ANYONE, jobs.show),
    Route("GET", "/v1/jobs/{job}/stats", ANYONE, jobs.stats),
    Route("GET", "/v1/jobs/{job}/explain", ANYONE, forecasts.explain, query=(WITHIN,), slow=True),
    Route("POST", "/v1/jobs/orders", CHANGE_JOBS, bulk_orders.carry_out, refuses=(404, 409, 507)),
    Route(
        "POST", "/v1/what-if", ANYONE, forecasts.what_if, query=(WITHIN, PART), refuses=(404, 422), slow=True
    ),
    Route("POST", "/v1/slurm/sbatch", SUBMIT, sbatch.submit, status=201, refuses=(422, 507)),
    Route("POST", "/v1/workloads", SUBMIT, workloads.submit, status=201, refuses=(422, 507)),
    Route("POST", "/v1/workloads/preview", PREVIEW, workloads.preview, refuses=(422,)),
    Route("GET", "/v1/workloads", ANYONE, workloads.listing, query=WORKLOADS),
    Route("GET", "/v1/workloads/{workload}", ANYONE, workloads.show, slow=True),
    Route("POST", "/v1/workloads/{workload}/cancel", CHANGE_JOBS, workloads.cancel, refuses=(409, 507)),
    Route("POST", "/v1/workloads/{workload}/retry", CHANGE_JOBS, workloads.retry, refuses=(409, 422, 507)),
    Route("POST", "/v1/jobs/{job}/cancel", CANCEL, jobs.cancel, refuses=(409, 507)),
    Route("POST", "/v1/jobs/{job}/set", SET, jobs.change, refuses=(409, 422, 507)),
    Route("POST", "/v1/jobs/{job}/signal", SIGNAL, jobs.signal, refuses=(409, 422)),
    Route("POST", "/v1/jobs/{job}/checkpoint", CHECKPOINT, jobs.checkpoint, refuses=(409,)),
    Route("POST", "/v1/jobs/{job}/hold", HOLD, jobs.hold, refuses=(409, 507)),
    Route("POST", "/v1/jobs/{job}/keep", KEEP, jobs.keep, refuses=(409, 507)),
    Route("POST", "/v1/jobs/{job}/preempt", PREEMPT, jobs.preempt, refuses=(409, 507)),
    Route("POST", "/v1/jobs/{job}/requeue", REQUEUE, jobs.requeue, refuses=(409, 507)),
    Route("POST", "/v1/jobs/{job}/release", RELEASE, jobs.release, refuses=(409, 507)),
    Route(
        "GET",
        "/v1/jobs/{job}/logs",
        READ_OUTPUT,
        logs.read,
        BINARY,
        query=LOG,
        refuses=(409,),
        slow=True,
        of_leader=True,
    ),
    Route(
        "GET",
        "/v1/jobs/{job}/logs/search",
        READ_OUTPUT,
        logs.search,
        query=LOG_SEARCH,
        refuses=(409,),
        slow=True,
        of_leader=True,
    ),
    Route(
        "POST",
        "/v1/jobs/{job}/shells",
        EXEC,
        exec_sessions.open_one,
        status=201,
        refuses=(409, 422),
        slow=True,
    ),
    Route("POST", "/v1/jobs/{job}/steps", EXEC, jobs.record_step, refuses=(409, 422), slow=True),
    Route(
        "GET",
        "/v1/shells/{shell}",
        USE_SHELL,
        exec_sessions.read,
        LINES,
        refuses=(409,),
        slow=True,
        of_leader=True,
    ),
    Route("POST", "/v1/shells/{shell}/input", USE_SHELL, exec_sessions.write, refuses=(422,)),
    Route("GET", "/v1/nodes", ANYONE, nodes.listing),
    Route("GET", "/v1/gpus", ANYONE, nodes.gpus),
    Route("POST", "/v1/nodes", operator("add nodes"), hosts.add, status=201, refuses=(409, 507), slow=True),
    Route("POST", "/v1/preflight", operator("look at hosts"), hosts.preflight, refuses=(404, 409), slow=True),
    Route("POST", "/v1/nodes/{node}/trust", operator("trust host keys"), hosts.trust, refuses=(409, 507)),
    Route("POST", "/v1/nodes/{node}/remove", operator("remove nodes"), hosts.remove, refuses=(409, 507)),
    Route("POST", "/v1/nodes/{node}/lost", operator("declare nodes lost"), hosts.lost, refuses=(409, 507)),
    Route("GET", "/v1/nodes/{node}", ANYONE, nodes.show),
    Route("POST", "/v1/nodes/{node}/drain", operator("drain nodes"), nodes.drain, refuses=(507,)),
    Route("POST", "/v1/nodes/{node}/resume", operator("resume nodes"), nodes.resume, refuses=(409, 507)),
    Route("GET", "/v1/engines", ANYONE, engines.listing),
    Route("GET", "/v1/engines/{engine}", ANYONE, engines.show),
    Route("POST", "/v1/engines/{engine}/test", operator("test engines"), engines.test, slow=True),
    Route("POST", "/v1/engines/{engine}/drain", operator("drain engines"), engines.drain),
    Route("POST", "/v1/engines/{engine}/resume", operator("resume engines"), engines.resume),
    Route("GET", "/v1/quotas", ANYONE, quotas.listing),
    Route("POST", "/v1/quotas/sync", operator("apply quotas"), quotas.sync, refuses=(409, 507)),
    Route("GET", "/v1/quotas/{scope}/{name}", ANYONE, quotas.show),
    Route("PATCH", "/v1/quotas/{scope}/{name}", operator("set quotas"), quotas.edit, refuses=(507,)),
    Route("POST", "/v1/quotas/{scope}/{name}/set", operator("set quotas"), quotas.change, refuses=(507,)),
    Route(
        "POST",
        "/v1/quotas/{scope}/{name}/sync",
        operator("apply quotas"),
        quotas.sync_one,
        slow=True,
        refuses=(503, 507),
    ),
    Route("POST", "/v1/quotas/{scope}/{name}/unset", operator("unset quotas"), quotas.unset, refuses=(507,)),
    Route("GET", "/v1/queues", ANYONE, queues.listing),
    Route("GET", "/v1/plan", ANYONE, forecasts.plan, query=(HORIZON, WITHIN), slow=True),
    Route("GET", "/v1/pulse", ANYONE, pulse.show, query=PULSE),
    Route("GET", "/v1/pulse/gpus", ANYONE, pulse.gpu_loads, query=GPU_LOADS),
    Route("GET", "/v1/scheduler", ANYONE, scheduler.show),
    Route(
        "POST",
        "/v1/scheduler/trigger",
        operator("request scheduling cycles"),
        scheduler.trigger,
        refuses=(507,),
        slow=True,
    ),
    Route("GET", "/v1/topology", ANYONE, scheduler.topology),
    Route("GET", "/v1/licences", ANYONE, licences.listing),
    Route("GET", "/v1/services", ANYONE, services.listing),
    Route("GET", "/v1/services/{service}", ANYONE, services.show),
    Route(
        "POST",
        "/v1/services/{service}/restart",
        operator("restart services"),
        services.restart,
        refuses=(404, 507),
    ),
    Route(
        "POST",
        "/v1/services/{service}/scale",
        operator("scale services"),
        services.scale,
        refuses=(404, 422, 507),
    ),
    Route("GET", "/v1/profiles", ANYONE, profiles.listing),
    Route("GET", "/v1/profiles/{profile}", ANYONE, profiles.show),
    Route("GET", "/v1/projects", ANYONE, projects.listing),
    Route("GET", "/v1/projects/{project}", ANYONE, projects.show),
    Route("GET", "/v1/shares", ANYONE, shares.listing),
    Route("POST", "/v1/shares", operator("change shares"), shares.weigh, refuses=(404, 507)),
    Route(
        "POST", "/v1/nodes/{node}/marks", operator("label and taint nodes"), nodes.mark, refuses=(422, 507)
    ),
    Route("GET", "/v1/config", ANYONE, config.show),
    Route("GET", "/v1/config/explain", ANYONE, policy.explain, query=POLICY),
    Route("GET", "/v1/config/keys", operator("read the configuration", changes=False), config.keys),
    Route("POST", "/v1/config", operator("apply a configuration"), config.apply, refuses=(404, 409, 507)),
    Route("GET", "/v1/rebalance", ANYONE, rebalance.show),
    Route("POST", "/v1/rebalance/run", operator("move jobs"), rebalance.run, refuses=(404, 409, 507)),
    Route("GET", "/v1/reservations", ANYONE, reservations.listing),
    Route(
        "POST",
        "/v1/reservations",
        operator("make reservations"),
        reservations.reserve,
        status=201,
        refuses=(404, 409, 507),
    ),
    Route("GET", "/v1/reservations/{reservation}", ANYONE, reservations.show),
    Route(
        "POST",
        "/v1/reservations/{reservation}/cancel",
        operator("cancel reservations"),
        reservations.cancel,
        refuses=(507,),
    ),
    Route(
        "DELETE",
        "/v1/reservations/{reservation}",
        operator("cancel reservations"),
        reservations.delete,
        refuses=(507,),
    ),
    Route(
        "POST",
        "/v1/nodes/{node}/gpus/{gpu}/cordon",
        operator("cordon GPUs"),
        nodes.cordon_gpu,
        refuses=(507,),
    ),
    Route(
        "POST",
        "/v1/nodes/{node}/gpus/{gpu}/resume",
        operator("resume GPUs"),
        nodes.resume_gpu,
        refuses=(409, 507),
    ),
    Route("GET", "/v1/usage", ANYONE, usage.show, query=USAGE, refuses=(404,), slow=True),
    Route("GET", "/v1/usage/off-queue", ANYONE, usage.off_queue, query=(SINCE, UNTIL)),
    Route("GET", "/v1/reports/estimates", ANYONE, reports.estimates),
    Route("GET", "/v1/reports/budgets", ANYONE, reports.budgets_report),
    Route("GET", "/v1/reports/fairness", ANYONE, reports.fairness_report, query=FAIRNESS),
    Route("GET", "/v1/reports/month", ANYONE, month.show, query=MONTH, refuses=(404,), slow=True),
    Route("GET", "/v1/reports/nodes", ANYONE, reports.nodes, query=(SINCE,)),
    Route("GET", "/v1/reports/sla", ANYONE, month.sla, query=(SINCE,)),
    Route("GET", "/v1/reports/waste", ANYONE, reports.waste_report, query=(SINCE,)),
    Route("GET", "/v1/cluster", ANYONE, cluster.show),
    Route("GET", "/v1/events", ANYONE, events.listing, query=EVENTS),
    Route(
        "GET",
        "/v1/stream",
        ANYONE,
        event_stream.follow,
        "text/event-stream",
        query=STREAM,
        refuses=(409,),
        slow=True,
    ),
    Route("GET", "/v1/ca", PUBLIC, certificate_authority.show, "application/x-pem-file", refuses=(404,)),
    Route("GET", "/v1/audit", admin("read the audit log", changes=False), audit.show, query=(AFTER, LIMIT)),
    Route("GET", "/v1/login", PUBLIC, login.show, refuses=(404,)),
    Route("POST", "/v1/login", PUBLIC, login.log_in, status=201, refuses=(404, 409, 507), slow=True),
    Route("GET", "/v1/whoami", ANYONE, tokens.whoami),
    Route("GET", "/v1/tokens", LIST_TOKENS, tokens.listing),
    Route("POST", "/v1/tokens", TOKENS, tokens.create, status=201, refuses=(404, 409, 507)),
    Route("POST", "/v1/tokens/{token}/revoke", TOKENS, tokens.revoke, refuses=(404, 507)),
    Route("GET", "/v1/controllers", ANYONE, controllers.show),
    Route("GET", "/v1/store/verify", store.VERIFY, store.verify, LINES),
    Route("POST", "/v1/store/compact", store.COMPACT, store.compact, refuses=(507,)),
    Route("GET", "/v1/notify", ANYONE, notify.show),
    Route("GET", "/v1/notify/me", ANYONE, notify.settings),
    Route("POST", "/v1/notify/me", NOTIFY_ME, notify.change_settings, refuses=(507,)),
    Route("GET", "/v1/notify/outbox", ANYONE, notify.outbox),
    Route("POST", "/v1/notify/retry", operator("retry messages"), notify.retry, refuses=(404,)),
    Route(
        "POST",
        "/v1/notify/test",
        operator("send test messages"),
        notify.test,
        refuses=(404,),
        slow=True,
    ),
    Route("GET", "/metrics", ANYONE, metrics.show, "text/plain", query=(GPU_READINGS,)),
    Route("GET", "/v1/health", ANYONE, cluster.health),
    Route("GET", "/readyz", PUBLIC, cluster.ready, "text/plain"),
    Route("GET", "/v1/openapi.json", ANYONE, openapi.show, "application/json"),
)

_METHODS: dict[str, dict[str, Route]] = {}
for _route in ROUTES:
    _METHODS.setdefault(_route.path, {})[_route.method] = _route
_FIXED = {path: methods for path, methods in _METHODS.items() if "{" not in path}
_OPEN = {tuple(path.split("/")): methods for path, methods in _METHODS.items() if "{" in path}
PUBLIC_ROUTES = {(route.method, route.path) for route in ROUTES if route.needs is PUBLIC}
"""The only routes that need no token."""


def find(method: str, path: str) -> tuple[Route, Mapping[str, str]]:
    """Return the route for this method and path, and the values of the placeholders in its path."""
    fixed = _FIXED.get(path)
    methods, filled = (fixed, {}) if fixed is not None else _find_open(path.split("/"))
    route = methods.get(method)
    if route is None:
        allowed = ", ".join(sorted(methods))
        message = f"the method {method} is not supported here; use {allowed}"
        hint = "See /v1/openapi.json."
        raise rejected("no_such_method", message, hint=hint, headers={"Allow": allowed})
    return route, filled


def _find_open(parts: list[str]) -> tuple[dict[str, Route], dict[str, str]]:
    for shape, methods in _OPEN.items():
        if len(shape) == len(parts) and all(
            each.startswith("{") or each == part for each, part in zip(shape, parts, strict=True)
        ):
            names = ((each[1:-1], part) for each, part in zip(shape, parts, strict=True) if each[:1] == "{")
            return methods, {name: urllib.parse.unquote(part) for name, part in names}
    raise rejected("not_found", f"there is nothing at {'/'.join(parts)}", hint="See /v1/openapi.json.")
