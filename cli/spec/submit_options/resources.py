"""Options for the resources of a job: CPU cores, memory, GPUs, nodes, data sets and licences."""

from __future__ import annotations

from cli.spec.submit_options.job_option import CORES, COUNT, LIST, SIZE, SUM, SWITCH, TIME, JobOption
from wire import amounts
from wire.job.gangs import MemberFailure
from wire.job.licences import parse_licence
from wire.job.placement.gpu_requirements import parse_require_or_prefer
from wire.job.spec import gpus_text

ROWS: tuple[JobOption, ...] = (
    JobOption(
        "cpus",
        "CPU cores per node (e.g. 4 or 0.5). Default: a part of the node's cores in proportion to the job's"
        " GPUs on the node (about a quarter for 2 of 8 GPUs); 1 for a job without GPUs.",
        "cpu_milli",
        **CORES,
    ),
    JobOption(
        "memory",
        "Memory per node (e.g. 512M or 16G). Default: a part of the node's memory in proportion to the "
        "job's GPUs on the node (about a quarter for 2 of 8 GPUs); for a job without GPUs, in proportion to"
        " its CPU cores.",
        "memory_mib",
        **SIZE,
    ),
    JobOption(
        "scratch",
        "Space on the local disk of each node (e.g. 100G). In the job, $CORRAL_SCRATCH is the path of "
        "the directory. Default: none.",
        "scratch_mib",
        **SIZE,
    ),
    JobOption(
        "gpus",
        "Total number of GPUs on all nodes (e.g. 8), or a fraction of one GPU (e.g. 0.25). Default: 0.",
        "gpus.total",
        metavar="N",
        read=amounts.gpus,
        show=lambda value: [gpus_text(value)] if value else [],
    ),
    JobOption(
        "gpus_per_node",
        "Number of GPUs on each node. Default: --gpus divided by --nodes.",
        "gpus.each",
        metavar="N",
        read=amounts.count,
        show=lambda _: [],
    ),
    JobOption("nodes", "Number of nodes. Default: the fewest nodes that have enough GPUs.", **COUNT),
    JobOption("tasks_per_node", "Start the command N times on each node. Default: 1.", **COUNT),
    JobOption(
        "min_nodes",
        "Let the job start on fewer nodes than --nodes if not all are free, but on at least this number of "
        "nodes. Default: the value of --nodes.",
        "gang.min_nodes",
        **COUNT,
    ),
    JobOption(
        "assembly_time",
        "With --min-nodes: time for which the job first waits for all --nodes nodes. After this time, the "
        "job may start on fewer nodes. Default: 0s.",
        "gang.assembly_s",
        **TIME,
    ),
    JobOption(
        "on_member_failure",
        "What happens when the job's command fails on one of its nodes: fail (end the job on all nodes), "
        "continue (on the other nodes), or restart (on all nodes). Default: fail.",
        "gang.on_failure",
        metavar="POLICY",
        read=amounts.member(MemberFailure),
    ),
    JobOption(
        "elastic",
        "Let the scheduler change the number of nodes while the job runs, between --min-nodes and --nodes.",
        "gang.elastic",
        **SWITCH,
    ),
    JobOption(
        "mixed_models",
        "Accept nodes whose GPU models differ from each other. Default: one GPU model on all nodes.",
        "gang.mixed_models",
        **SWITCH,
    ),
    JobOption(
        "gpu_model",
        "Use only GPUs of this model (e.g. H100). May be repeated, to allow several models. A job without "
        "GPUs runs on a node with such a GPU.",
        "gpu_models",
        metavar="MODEL",
        **LIST,
    ),
    JobOption(
        "gpu_memory",
        "Request a fraction of one GPU by the amount of its memory (e.g. 20G), instead of by --gpus.",
        "gpu.memory_mib",
        **SIZE,
    ),
    JobOption(
        "min_gpu_memory",
        "Use only GPUs with at least this much memory (e.g. 40G).",
        "gpu.least_mib",
        **SIZE,
    ),
    JobOption(
        "compute",
        "Use only GPUs of this CUDA compute capability or higher (e.g. 8.0).",
        "gpu.compute",
        metavar="X.Y",
    ),
    JobOption(
        "mig",
        "Use MIG instances of this MIG profile (e.g. 1g.5gb) instead of whole GPUs.",
        "gpu.mig",
        metavar="PROFILE",
    ),
    JobOption(
        "numa",
        "Require or prefer that all GPUs of the job on a host are on the same NUMA node. HOW is require "
        "or prefer.",
        "gpu.numa",
        metavar="HOW",
        read=parse_require_or_prefer,
    ),
    JobOption(
        "nvlink",
        "Require or prefer that all GPUs of the job on a host are linked by NVLink. HOW is require or "
        "prefer.",
        "gpu.nvlink",
        metavar="HOW",
        read=parse_require_or_prefer,
    ),
    JobOption(
        "data",
        "Name of a data set that the job reads, and its size (e.g. imagenet or imagenet:150G). The job "
        "prefers nodes on which jobs have read the data set lately, and nodes with the label data/NAME. "
        "May be repeated.",
        "datasets",
        metavar="NAME[:SIZE]",
        title="reads",
        **SUM,
    ),
    JobOption(
        "licence",
        "Hold N licences of this name while the job runs (e.g. matlab:2). Default for N: 1. May be repeated.",
        "licences",
        metavar="NAME[:N]",
        read=parse_licence,
        show=lambda licences: [f"{name}:{count}" for name, count in licences.items()],
        **SUM,
    ),
    JobOption(
        "cpu_limit",
        "Largest number of CPU cores per node that the job may use if other jobs leave cores "
        "idle. Default: the value of --cpus.",
        "cpu_limit_milli",
        **CORES,
    ),
    JobOption(
        "memory_limit",
        "Largest amount of memory per node that the job may use if other jobs leave memory free. "
        "Default: the value of --memory.",
        "memory_limit_mib",
        **SIZE,
    ),
    JobOption(
        "best_effort",
        "Request almost no CPU and memory. The job may use the CPU and memory that other jobs leave idle.",
        **SWITCH,
    ),
)
