"""GET /metrics: metrics of the controller and of plugins, in the text format of Prometheus."""

from __future__ import annotations

from aiohttp import web

from controller.api.handlers.service.cluster import settled_or_late
from controller.api.metrics.activity import (
    activity_metrics,
    histograms,
    notification_metrics,
    plugin_metrics,
    watch_metrics,
)
from controller.api.metrics.cluster import cluster_metrics, engine_metrics, gpu_metrics
from controller.api.metrics.prometheus_text import CONTENT, sample_lines
from controller.api.metrics.tenants import (
    accounting_metrics,
    budget_metrics,
    estimate_metrics,
    service_metrics,
)
from controller.api.server.request import Call


async def show(call: Call) -> web.Response:
    """Show metrics of jobs, nodes, GPUs, scheduling cycles, commits and requests, and the metrics of plugins.

    With gpus=1, the answer also contains the measurements of each GPU. On large clusters these measurements
    make up most of the answer.
    """
    daemon = call.daemon
    await settled_or_late(daemon)
    engine, now = daemon.engine, daemon.now()
    lines = [
        *sample_lines(cluster_metrics(engine)),
        *sample_lines(engine_metrics(call.daemon.engines, call.daemon.now())),
        *sample_lines(gpu_metrics(engine, daemon.agents.readings) if call.query["gpus"] else ()),
        *sample_lines(estimate_metrics(engine)),
        *sample_lines(accounting_metrics(daemon)),
        *sample_lines(budget_metrics(engine, now)),
        *sample_lines(service_metrics(engine, now)),
        *sample_lines(notification_metrics(daemon)),
        *sample_lines(plugin_metrics(engine, now)),
        *sample_lines(activity_metrics(daemon.counters, daemon.seq, daemon.started_at)),
        *sample_lines(watch_metrics(daemon.counters, daemon.watch)),
        *histograms(daemon.counters),
    ]
    body = "".join(f"{line}\n" for line in lines)
    return web.Response(body=body.encode("utf-8", "replace"), headers={"Content-Type": CONTENT})
