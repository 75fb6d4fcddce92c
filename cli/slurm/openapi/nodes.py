"""The objects of nodes in sinfo --json."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cli.slurm.formats.resources import tres_text
from cli.slurm.nodes.partitions import Node, Partition


def node_object(node: Node, queues: Sequence[Partition]) -> dict[str, Any]:
    """Return a node with all keys of the schema, in the order of the schema. Keys that Corral does not
    measure have fixed values, such as 0 or an empty text.
    """
    state = node.state.rstrip("*")
    flags = [name.upper() for name in ("drained", "draining") if state == name]
    base = {"drained": "idle", "draining": "mixed" if node.busy else "idle"}.get(state, state)
    total = tres_text(node.cpus, node.memory_mib, 1, 0, by_name=False, billing=False).replace(",node=1", "")
    used = f"cpu={node.cpus_used},mem={node.memory_used_mib}M"
    return {
        "architecture": "x86_64",
        "burstbuffer_network_address": "",
        "boards": 1,
        "boot_time": 0,
        "comment": "",
        "cores": max(1, node.cpus // max(1, node.sockets)),
        "cpu_binding": 0,
        "cpu_load": 0,
        "extra": "",
        "free_memory": 0,
        "cpus": node.cpus,
        "last_busy": 0,
        "features": ",".join(node.gpus),
        "active_features": ",".join(node.gpus),
        "gres": "" if node.gres == "(null)" else node.gres,
        "gres_drained": "N/A",
        "gres_used": ",".join(f"gpu:{kind}:{len(held)}" for kind, (_, held) in node.gpus.items()),
        "mcs_label": "",
        "name": node.name,
        "next_state_after_reboot": "invalid",
        "address": node.name,
        "hostname": node.name,
        "state": base,
        "state_flags": [*("DRAIN" for _ in flags), *(["NOT_RESPONDING"] if node.state.endswith("*") else [])],
        "next_state_after_reboot_flags": [],
        "operating_system": "Linux",
        "owner": None,
        "partitions": [queue.name for queue in queues if any(each.name == node.name for each in queue.nodes)],
        "port": 0,
        "real_memory": node.memory_mib,
        "reason": node.why,
        "reason_changed_at": int(node.since or 0) if node.why else 0,
        "reason_set_by_user": None,
        "slurmd_start_time": 0,
        "sockets": node.sockets,
        "threads": 1,
        "temporary_disk": 0,
        "weight": 1,
        "tres": f"{total},billing={node.cpus}" + (f",gres/gpu={node.gpus_total}" if node.gpus_total else ""),
        "slurmd_version": "22.05.8",
        "alloc_memory": node.memory_used_mib,
        "alloc_cpus": node.cpus_used,
        "idle_cpus": node.cpus - node.cpus_used,
        "tres_used": used + (f",gres/gpu={node.gpus_held}" if node.gpus_held else ""),
        "tres_weighted": float(node.cpus_used),
    }
