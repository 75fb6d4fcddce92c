"""Keeps the loads of GPUs and jobs over the last 10 minutes, for the small graphs in rows. Each view requests
the loads of the rows that it shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tui.data.request_workers import Failure
from tui.look.graphs import Values
from wire.api.service.cluster import GpuLoadView
from wire.http.client import Refused

if TYPE_CHECKING:
    from tui.app_interface import AppInterface

EVERY_S: Final = 10
"""Seconds between two requests. The controller takes a sample of each GPU at the same interval."""
KEPT: Final = 2_000
"""If the loads of more jobs and nodes than this are kept, all of them are deleted."""


@dataclass(frozen=True)
class ShownRows:
    """The nodes and the jobs whose loads a view shows."""

    nodes: tuple[str, ...] = ()
    jobs: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.nodes or self.jobs)


@dataclass
class LoadHistory:
    """The loads that the controller has sent. `nodes` has the loads of each GPU by the name of the node and
    the UUID of the GPU, and `jobs` the mean loads of jobs by id.
    """

    nodes: dict[str, Mapping[str, Values]] = field(default_factory=dict)
    jobs: dict[int, Values] = field(default_factory=dict)

    def take(self, answer: GpuLoadView) -> None:
        """Add the loads of an answer. If the loads of more than KEPT jobs and nodes are kept, first delete
        all of them.
        """
        if len(self.nodes) + len(self.jobs) > KEPT:
            self.nodes.clear()
            self.jobs.clear()
        self.nodes.update(answer.nodes)
        self.jobs.update((int(job), loads) for job, loads in answer.jobs.items())

    def has(self, rows: ShownRows) -> bool:
        return all(node in self.nodes for node in rows.nodes) and all(job in self.jobs for job in rows.jobs)

    def of_node(self, name: str) -> Values:
        """Return the mean loads over all GPUs of a node; empty if no loads of this node are known."""
        return mean(self.nodes.get(name, {}).values())


def mean(series: Iterable[Values]) -> list[float | None]:
    """Return the mean of several series. The value at each index is the mean of the values that the series
    have at this index; None if all series have None at this index.
    """
    means: list[float | None] = []
    for values in zip(*series, strict=False):
        known = [value for value in values if value is not None]
        means.append(sum(known) / len(known) if known else None)
    return means


class LoadRequests:
    """Requests the loads of the rows that a view shows. `shown` returns these rows, and `redraw` is called
    after an answer.

    1. `tick` is called once a second. It sends a request if the loads of a shown row are missing, or if the
       last request was EVERY_S seconds ago.
    2. Only one request is under way at a time.
    3. If the controller refuses a request, because it has an earlier version, no further requests are sent.
    """

    def __init__(
        self, app: Callable[[], AppInterface], shown: Callable[[], ShownRows], redraw: Callable[[], None]
    ) -> None:
        self._app, self._shown, self._redraw = app, shown, redraw
        self._ticks, self._asking, self._refused = EVERY_S, False, False

    @property
    def missing(self) -> bool:
        """Return True if the loads of a shown row have not arrived yet."""
        model = self._app().model
        return not self._refused and model.connection.state != "lost" and not model.loads.has(self._shown())

    def tick(self) -> None:
        """Send a request if the shown loads are old or missing. The view calls this once a second."""
        self._ticks += 1
        app = self._app()
        if self._asking or self._refused or app.model.connection.state == "lost":
            return
        rows = self._shown()
        if rows and (self._ticks >= EVERY_S or not app.model.loads.has(rows)):
            self._ticks, self._asking = 0, True
            app.requests.ask(
                lambda client: client.gpu_loads(nodes=rows.nodes, jobs=rows.jobs), self._answered
            )

    def _answered(self, answer: GpuLoadView | Failure) -> None:
        self._asking = False
        if isinstance(answer, GpuLoadView):
            self._app().model.loads.take(answer)
            self._redraw()
        else:
            self._refused = isinstance(answer, Refused)
