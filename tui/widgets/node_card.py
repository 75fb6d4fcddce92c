"""Shows the details of one node: its GPUs by NUMA node, the load of the GPUs, and the jobs on the node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby

from textual.strip import Strip

from tui.app_interface import app_of
from tui.look import cells, glyphs
from tui.look.styled_lines import Piece, bar, beside, fit
from tui.panels.events import node_events
from tui.panels.graphs import graph_lines
from tui.panels.jobs import job_lines
from tui.widgets.scrolling_pane import Pane
from wire.api.nodes import GpuView, NodeView
from wire.names import GpuHealth
from wire.text import duration, memory, printable

IDLE_S = 1_800
"""A GPU that a job holds is marked as idle after this many seconds without load."""
TIGHT, ROOMY = 118, 150
"""Two NUMA nodes are shown side by side if the widget is at least ROOMY cells wide. If the widget is not high
enough to show all NUMA nodes below one another, TIGHT cells are enough.
"""


class NodeCard(Pane):
    """Shows one node. The function `name` returns the name of the node to show."""

    def __init__(self, name: Callable[[], str | None], *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._name_of = name
        self._lines: list[list[Piece]] = []
        self.selects_gpus = False
        """True if the cursor keys move the cursor from GPU to GPU. False if the cursor keys scroll."""
        self._at = 0

    @property
    def total(self) -> int:
        return len(self._lines)

    @property
    def gpu(self) -> GpuView | None:
        """Return the GPU under the cursor; None if the node has no GPUs or the cursor keys scroll."""
        node = app_of(self).model.nodes.rows.get(self._name_of() or "")
        gpus = cells.by_numa(node) if node is not None and self.selects_gpus else []
        return gpus[min(self._at, len(gpus) - 1)] if gpus else None

    def step(self, by: int) -> None:
        if self.gpu is None:
            super().step(by)
            return
        node = app_of(self).model.nodes.rows[self._name_of() or ""]
        self._at = max(0, min(self._at + by, len(node.gpus) - 1))
        self.update()
        line = next((number for number, pieces in enumerate(self._lines) if _selected(pieces)), 0)
        if not self.top <= line < self.top + self.page:
            self.scroll_lines(line - self.page // 2)
        app_of(self).refresh_lines()

    def update(self) -> None:
        node = app_of(self).model.nodes.rows.get(self._name_of() or "")
        self._lines = self._drawn(node, self.size.width - 1) if node else []
        if node:
            self._lines += self._more(node, self.size.width - 1, self.page - len(self._lines))
        self.scroll_lines(self.top)
        self.refresh_changed()

    def on_resize(self) -> None:
        self.update()

    def paint_line(self, index: int, width: int) -> Strip:
        return app_of(self).paint.strip(self._lines[index], width)

    def _drawn(self, node: NodeView, width: int) -> list[list[Piece]]:
        lines = self._facts(node, width)
        numa = [list(group) for _, group in groupby(cells.by_numa(node), key=lambda gpu: gpu.numa)]
        stacked = len(lines) + len(numa) * 2 + len(node.gpus)
        if len(numa) > 1 and (width >= ROOMY or (width >= TIGHT and stacked > self.page)):
            half = width // 2
            for left, right in zip(numa[::2], [*numa[1::2], []], strict=False):
                lines.append([])
                lines += beside(
                    [(self._group(left, half - 2), half), (self._group(right, half - 2), width - half)]
                )
        else:
            for group in numa:
                lines += [[], *self._group(group, width)]
        on_gpus = {job for gpu in node.gpus for job in gpu.jobs}
        others = [job for job in node.jobs if job not in on_gpus]
        return [*lines, [], [(" without GPUs  ", "sorted"), *self._jobs(others)]] if others else lines

    def _more(self, node: NodeView, width: int, height: int) -> list[list[Piece]]:
        """Return lines for the free space below the GPUs: the jobs of the node, its last events, and the
        graphs of the cluster.
        """
        model, there = app_of(self).model, set(node.jobs)
        jobs = job_lines(
            f"jobs on {node.name}",
            lambda job: job.id in there,
            model,
            width,
            min(len(there) + 1, height // 2),
        )
        lines = [[], *jobs] if jobs else []
        graphs = graph_lines(model, width, (height - len(lines)) // 2)
        events = node_events(node.name, model, width, height - len(lines) - len(graphs) - 1)
        lines += [[], *events] if events else []
        return [*lines, *(graphs or graph_lines(model, width, height - len(lines)))]

    def _facts(self, node: NodeView, width: int) -> list[list[Piece]]:
        model = app_of(self).model
        small = 10 if width < 100 else 16
        cpu = 1 - node.cpu_free_milli / max(1, node.cpu_milli)
        mem = 1 - node.memory_free_mib / max(1, node.memory_mib)
        head: list[Piece] = [
            ("── ", "line"),
            (printable(node.name, 40), "strong"),
            ("  ", "text"),
            cells.node_state(node),
        ]
        if node.since is not None:
            head.append((f" for {duration(model.now() - node.since)}", "muted"))
        if node.why:
            head.append((f"  {printable(node.why, 120)}", "warn"))
        head.append((f" {'─' * width}", "line"))
        load: list[Piece] = [
            (" cpu ", "muted"), *bar(cpu, small),
            (f" {(node.cpu_milli - node.cpu_free_milli) / 1000:g}/{node.cpu_milli / 1000:g}", "text"),
            ("   memory ", "muted"), *bar(mem, small),
            (f" {memory(node.memory_mib - node.memory_free_mib)}/{memory(node.memory_mib)}", "text"),
        ]  # fmt: skip
        if node.driver:
            load.append((f"   driver {printable(node.driver, 24)}", "faint"))
        labels = "  ".join(printable(f"{name}={value}", 60) for name, value in sorted(node.labels.items()))
        taints = "  ".join(printable(taint, 60) for taint in node.taints)
        return [head, load, *([(f" {text}", "faint")] for text in (labels, taints) if text)]

    def _group(self, gpus: Sequence[GpuView], width: int) -> list[list[Piece]]:
        if not gpus:
            return []
        first = gpus[0]
        title = f" NUMA {first.numa}" if first.numa >= 0 else " GPUs"
        what = f"  {printable(first.model, 40)}  {memory(first.memory_mib)}"
        return [[(title, "sorted"), (what, "muted")], *(self._gpu(gpu, width) for gpu in gpus)]

    def _gpu(self, gpu: GpuView, width: int) -> list[Piece]:
        kind = cells.gpu_kind(gpu)
        wide = width >= 74
        here = self.gpu
        selected = here is not None and here.index == gpu.index and here.uuid == gpu.uuid
        loads = app_of(self).model.loads.nodes.get(self._name_of() or "", {}).get(gpu.uuid)
        size = 16 if wide else 8
        kind_of_bar = kind if kind != "free" else "faint"
        load = bar(gpu.utilisation / 100, size, kind_of_bar)
        if loads is not None:
            small = bar(gpu.utilisation / 100, size - cells.SPARKS - 1, kind_of_bar) if wide else []
            load = [*small, (" " if wide else "", "text"), *cells.load_graph(loads, bool(gpu.jobs))]
        pieces: list[Piece] = [
            (glyphs.CURSOR if selected else " ", "edge"),
            (f"{glyphs.GPU[kind]} ", kind),
            (f"{gpu.number:<3}", "strong" if selected else "text"),
            (fit(glyphs.GPU_WORD[kind], 6), kind),
            *load,
            (f"{gpu.utilisation:>4}%", "text" if gpu.utilisation else "faint"),
            (f"{memory(gpu.memory_used_mib):>7}" + (f"/{memory(gpu.memory_mib)}" if wide else ""), "muted"),
        ]
        if width >= 56:
            pieces.append((f"{gpu.power_w:>5}W{gpu.temperature_c:>4}°", "muted"))
        idle = 0.0 if gpu.idle_since is None else app_of(self).model.now() - gpu.idle_since
        marks = [(f"idle {duration(idle)}  ", "warn")] if idle >= IDLE_S else []
        return [*pieces, ("  ", "text"), *self._holders(gpu), *marks, *_marks(gpu)]

    def _holders(self, gpu: GpuView) -> list[Piece]:
        sick = gpu.health is not GpuHealth.OK
        state = [(f"{gpu.health.value} {printable(gpu.why, 80)}  ", "bad")] if sick else []
        return [*state, *self._jobs(gpu.jobs)]

    def _jobs(self, jobs: Sequence[int]) -> list[Piece]:
        """Return the display ids and names of jobs, on one line."""
        rows = app_of(self).model.jobs.rows
        pieces: list[Piece] = []
        for job in jobs:
            row = rows.get(job)
            label, name = (printable(row.label), f" {printable(row.name, 24)}") if row else (str(job), "")
            pieces += [(f"{label}", "accent"), (f"{name}  ", "text")]
        return pieces


def _selected(pieces: Sequence[Piece]) -> bool:
    return (glyphs.CURSOR, "edge") in pieces


def _marks(gpu: GpuView) -> list[Piece]:
    """Return texts about problems of a GPU: processes that no job started, broken NVLink links, memory
    errors, or clock rates that are reduced for another reason than the power cap.
    """
    off_queue = [each for each in gpu.processes if each.job is None]
    pieces: list[Piece] = [
        (f"off-queue: {printable(each.user, 16)} {printable(each.command, 24)}  ", "warn")
        for each in off_queue[:2]
    ]
    if gpu.links_up < gpu.links_there:
        pieces.append((f"NVLink {gpu.links_up}/{gpu.links_there}  ", "warn"))
    if gpu.ecc_uncorrected:
        pieces.append((f"ECC {gpu.ecc_uncorrected} uncorrected  ", "bad"))
    hot = [word for word in gpu.throttle if word != "power cap"]
    return [*pieces, (f"slowed: {', '.join(hot)}  ", "warn")] if hot else pieces
