"""Formats nodes and partitions as scontrol shows them."""

from __future__ import annotations

from collections.abc import Iterable

from cli.slurm.formats.times import long_span, moment
from cli.slurm.nodes.partitions import Node, Partition
from cli.slurm.nodes.sinfo_fields import cores
from wire.cluster.hostlist import fold_hostlist


def node_lines(node: Node, partitions: Iterable[Partition], *, details: bool = False) -> list[str]:
    """Return the lines about one node. With `details`, add the GPUs that jobs hold."""
    names = ",".join(each.name for each in partitions if node in each.nodes)
    gpus = f",gres/gpu={node.gpus_total}" if node.gpus else ""
    held = f",gres/gpu={node.gpus_held}" if node.gpus_held else ""
    used = f"cpu={node.cpus_used},mem={node.memory_used_mib}M{held}" if node.busy else ""
    since = moment(node.since, "Unknown")
    reason = [f"Reason={node.why} [root@{since}]"] if node.why and not node.usable else []
    return [
        f"NodeName={node.name} Arch=x86_64 CoresPerSocket={cores(node)} ",
        f"CPUAlloc={node.cpus_used} CPUEfctv={node.cpus} CPUTot={node.cpus} CPULoad=N/A",
        f"AvailableFeatures={node.features}",
        f"ActiveFeatures={node.features}",
        f"Gres={node.gres}",
        *([f"GresUsed={node.gres_used}"] if details else []),
        f"NodeAddr={node.name} NodeHostName={node.name} Version=22.05.8",
        f"RealMemory={node.memory_mib} AllocMem={node.memory_used_mib} FreeMem=N/A "
        f"Sockets={node.sockets} Boards=1",
        f"State={_state(node)} ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A",
        f"Partitions={names} ",
        "BootTime=None SlurmdStartTime=None",
        "LastBusyTime=Unknown",
        f"CfgTRES=cpu={node.cpus},mem={node.memory_mib}M,billing={node.cpus}{gpus}",
        f"AllocTRES={used}",
        "CapWatts=n/a",
        "CurrentWatts=0 AveWatts=0",
        "ExtSensorsJoules=n/s ExtSensorsWatts=0 ExtSensorsTemp=n/s",
        *reason,
    ]


def _state(node: Node) -> str:
    base = node.state.rstrip("*")
    busy = "ALLOCATED" if node.cpus_used >= node.cpus else "MIXED" if node.busy else "IDLE"
    word = f"{busy}+DRAIN" if base in ("drained", "draining") else base.upper()
    return word + ("+NOT_RESPONDING" if node.state.endswith("*") else "")


def partition_lines(partition: Partition) -> list[str]:
    """Return the lines about one partition."""
    found = partition.nodes
    cpus, gpus = sum(node.cpus for node in found), sum(node.gpus_total for node in found)
    memory = sum(node.memory_mib for node in found)
    tres = f"cpu={cpus},mem={memory}M,node={len(found)},billing={cpus}"
    default = "NONE" if partition.default_time_s is None else long_span(partition.default_time_s)
    longest = "UNLIMITED" if partition.max_time_s is None else long_span(partition.max_time_s)
    return [
        f"PartitionName={partition.name}",
        f"AllowGroups=ALL AllowAccounts={','.join(partition.projects) or 'ALL'} AllowQos=ALL",
        f"AllocNodes=ALL Default={'YES' if partition.default else 'NO'} QoS=N/A",
        f"DefaultTime={default} DisableRootJobs=NO ExclusiveUser=NO GraceTime=0 Hidden=NO",
        f"MaxNodes=UNLIMITED MaxTime={longest} MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED",
        f"Nodes={fold_hostlist(node.name for node in found) or '(null)'}",
        f"PriorityJobFactor={partition.priority} PriorityTier={partition.priority} RootOnly=NO ReqResv=NO "
        "OverSubscribe=NO",
        "OverTimeLimit=NONE PreemptMode=REQUEUE",
        f"State=UP TotalCPUs={cpus} TotalNodes={len(found)} SelectTypeParameters=NONE",
        "JobDefaults=(null)",
        "DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED",
        f"TRES={tres}{f',gres/gpu={gpus}' if gpus else ''}",
    ]
