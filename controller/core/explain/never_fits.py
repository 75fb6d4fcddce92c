"""Refuses a request that the nodes could not hold even if all of them were idle."""

from __future__ import annotations

from dataclasses import replace

from controller.core.explain.filter_losses import MAX_EXAMPLES, filter_losses, uneven_gpus_hint
from controller.core.explain.largest_jobs import too_many_gpus_hint
from controller.core.framework.unfiltered_constraints import UNFILTERED_HINT, unfiltered_message
from controller.core.model.decision.decision import Refusal
from controller.core.model.request import ResourceRequest
from controller.core.placement.placer import Placer
from wire.text import counted


def never_fits(placer: Placer, ask: ResourceRequest) -> Refusal | None:
    """Return a refusal if the nodes could not hold the request even if all were idle; otherwise None.

    While some node has not connected since the controller started, its hardware is unknown or may have
    changed. Then refuse only a request with a constraint that no filter checks. The same holds on a cluster
    without nodes.
    """
    if placer.shape(ask) is not None:
        return None
    nodes, field = placer.nodes, placer.unsupported_request(ask.part)
    if field is not None:
        return Refusal(
            "never_fits", f"can never be placed: {unfiltered_message(field)}", field, UNFILTERED_HINT
        )
    if not len(nodes) or nodes.never_connected:
        return None
    if any(node.reconnect_expected for node in nodes.rows):
        return None
    part, need = ask.part, ask.nodes or 1
    topology = ask.topology
    too_many = too_many_gpus_hint(nodes.columns, ask)
    if ask.one_model and placer.shape(replace(ask, one_model=False)) is not None:
        what = counted(part.gpus, "GPU") if ask.nodes is None else f"{counted(need, 'node')} with {part}"
        message = f"can never be placed: it needs {what} of one GPU model"
        hint = too_many or "--mixed-models allows nodes with different GPU models."
        return Refusal("never_fits", message, "gpus" if ask.nodes is None else "nodes", hint)
    if topology is not None and placer.shape(replace(ask, topology=None)) is not None:
        values = ", ".join(placer.domains(topology).names[:10]) or "none"
        message = (
            f"can never be placed: it needs {counted(need, 'node')} with {part} in {topology}, "
            "and no such set of nodes exists, even when idle"
        )
        hint = f"The values of the label {topology.label} are: {values}."
        return Refusal("never_fits", message, "topology", hint)
    largest = int(nodes.columns.gpu_count.max())
    if part.wants_gpus and not largest:
        return _without_gpus(placer, ask)
    found, fitting = filter_losses(placer, part, nodes.idle)
    counts = "; ".join(f"{counted(loss.lost, 'node')}: {loss.message}" for loss in found)
    message = (
        f"can never be placed: it needs {counted(need, 'node')} with {part}, and {fitting} of {len(nodes)} "
        "could give that when idle" + (f" ({counts})" if counts else "")
    )
    where = "gpus" if part.gpus > largest else "nodes" if need > len(nodes) else ""
    if any(loss.filter == "image" for loss in found):
        hint = "Images need podman, docker or apptainer: 'corral nodes show NODE' shows what the node has."
        return Refusal("never_fits", message, "image", hint)
    hint = too_many or (uneven_gpus_hint(part.gpus, len(nodes), largest) if ask.nodes is None else "")
    if not hint:
        size = f"The largest node has {counted(largest, 'GPU')}: 'corral nodes'."
        hint = size if where == "gpus" else "'corral nodes' shows what each node has."
    return Refusal("never_fits", message, where, hint)


def _without_gpus(placer: Placer, ask: ResourceRequest) -> Refusal:
    """Return the refusal of a GPU job on a cluster without GPUs.

    The refusal mentions the GPU driver, because a host with GPUs but without a driver reports no GPUs.
    """
    names = [node.name for node in placer.nodes.rows]
    silent_node_text = ", ".join(names[:MAX_EXAMPLES]) + (", …" if len(names) > MAX_EXAMPLES else "")
    message = (
        f"can never be placed: it needs {ask.part}, and no node has a GPU: "
        f"no NVIDIA driver (NVML) was found on {silent_node_text}"
    )
    hint = (
        f"Does 'nvidia-smi' work there? To try Corral without GPUs, write gpus = \"simulated:8xH100\" under "
        f"[nodes.{names[0]}] in scheduler.toml and restart the controller, or submit without GPUs."
    )
    return Refusal("never_fits", message, "gpus", hint)
