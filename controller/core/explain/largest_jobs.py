"""Finds the largest number of GPUs that one job can get when the cluster is idle, by GPU model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from controller.core.cluster.node_table import Ints, NodeTable, names_model
from controller.core.model.request import ResourceRequest
from wire.text import counted

SHOWN = 4
"""The most GPU models that a hint names."""


@dataclass(frozen=True, slots=True)
class LargestJob:
    """The largest number of GPUs that a job can get, for one model or for any model. Each of its nodes has
    the same number of GPUs.
    """

    gpus: int
    nodes: int
    model: str = ""
    """The GPU model; empty if the nodes may have different models."""

    def __str__(self) -> str:
        model = f" {self.model}" if self.model else ""
        return f"{self.gpus:,}{model} on {counted(self.nodes, 'node')}"


def too_many_gpus_hint(columns: NodeTable, ask: ResourceRequest) -> str:
    """Return a hint with the largest number of GPUs that a job can get. Return an empty text if the request
    is not larger than this number, or if no node has a GPU of a requested model.

    Example: "A job can get at most 32 GPUs: 32 H100 on 4 nodes, 16 A100 on 2 nodes; with --mixed-models 48 on
    6 nodes. Ask for at most 32 GPUs, or add --mixed-models."
    """
    total = ask.part.gpus * (ask.nodes or 1)
    wanted = [
        index
        for index, model in enumerate(columns.models)
        if not ask.part.models or any(names_model(name, model) for name in ask.part.models)
    ]
    found = [
        _largest((columns.gpu_model == index).sum(axis=1), ask.nodes, columns.models[index])
        for index in wanted
    ]
    by_model = sorted((each for each in found if each.gpus), key=lambda each: (-each.gpus, each.model))
    if not by_model:
        return ""
    mixed = _largest(np.isin(columns.gpu_model, wanted).sum(axis=1), ask.nodes)
    most = by_model[0].gpus if ask.one_model else mixed.gpus
    if total <= most:
        return ""
    more = f", and {len(by_model) - SHOWN} other models" if len(by_model) > SHOWN else ""
    texts = f"{', '.join(map(str, by_model[:SHOWN]))}{more}"
    advice = f"Ask for at most {counted(most, 'GPU')}"
    if mixed.gpus > by_model[0].gpus:
        texts += f"; with --mixed-models {mixed}"
        advice += ", or add --mixed-models" if ask.one_model and total <= mixed.gpus else ""
    where = "" if ask.nodes is None else f" on {counted(ask.nodes, 'node')}"
    return f"A job can get at most {counted(most, 'GPU')}{where}: {texts}. {advice}."


def _largest(counts: Ints, nodes: int | None, model: str = "") -> LargestJob:
    """Return the largest job on nodes with these numbers of GPUs. If `nodes` is not None, the job has this
    many nodes.
    """
    descending = np.sort(counts)[::-1]
    sizes = [
        LargestJob(int(each) * number, number, model)
        for number, each in enumerate(descending, 1)
        if nodes is None or number == nodes
    ]
    return max(sizes, key=lambda each: each.gpus, default=LargestJob(0, 0, model))
