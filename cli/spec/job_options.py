"""The table of all job options. One row defines the flag, the JobSpec field, and how its value is printed.

1. The `name` of a row gives the flag (`--gpu-model`), the same flag in a #CORRAL line, and the environment
   variable (`CORRAL_SUBMIT_GPU_MODEL`). `sbatch_directives.py` translates #SBATCH lines to these names.
2. `read` parses a text into the value of the JobSpec field `field`. If the text is invalid, it raises a
   ValueError that names valid values. `show` converts the value back to the texts of the flag.

Example: `--memory 16G`, `#CORRAL --memory=16G` and CORRAL_SUBMIT_MEMORY=16G all set `memory_mib` to 16384. A
suggestion to halve the memory is `corral job set 7 --memory 8G`. A new option is one new row.
"""

from __future__ import annotations

from collections.abc import Mapping

from cli.spec import option_texts
from cli.spec.job_option import (
    CORES,
    COUNT,
    DIR,
    LIST,
    NEGATED,
    SIGNAL,
    SIZE,
    SUM,
    SWITCH,
    TERM,
    TIME,
    WHEN,
    JobOption,
    after_option,
    umask,
)
from wire import amounts
from wire.job.affinity import parse_preference, parse_term, parse_toleration
from wire.job.gangs import MemberFailure
from wire.job.gpu_requirements import parse_domains, parse_require_or_prefer, parse_topology
from wire.job.health import HealthAction, HealthCheck
from wire.job.job_affinity import parse_job_term
from wire.job.licences import parse_licence
from wire.job.mail import mail_types
from wire.job.spec import gpus_text
from wire.job.start_conditions import RELAXABLE, OnNodeLost
from wire.names import priority_name

HEALTH = HealthCheck()


def _relaxable(text: str) -> str:
    flag = "--" + text.strip().removeprefix("--")
    field = BY_FLAG[flag].field if flag in BY_FLAG else flag[2:].replace("-", "_")
    if field not in RELAXABLE:
        known = ", ".join(FLAG_OF_FIELD[each].removeprefix("--") for each in RELAXABLE)
        raise ValueError(f"{text!r} cannot be relaxed; write {known}")
    return field


_ROWS = (
    JobOption("name", "Name of the job. Default: the name of the program or script.", metavar="NAME"),
    JobOption(
        "project", "Project that the job is billed to. Default: the project 'default'.", metavar="NAME"
    ),
    JobOption("queue", "Queue that the job waits in. Default: the queue 'default'.", metavar="NAME"),
    JobOption(
        "profile",
        "Scheduler profile of the job, from the list of 'corral profiles'. Default: the first "
        "profile that accepts the job's user, project or queue.",
        metavar="NAME",
        title="profile",
    ),
    JobOption(
        "priority",
        "Priority: a name (CRITICAL, HIGH, NORMAL, LOW, BATCH or SCAVENGER), or a number from 0 "
        "(lowest) to 100. Default: NORMAL.",
        metavar="CLASS",
        read=amounts.priority,
        show=lambda value: [priority_name(value)],
    ),
    JobOption(
        "cpus",
        "CPU cores per node (e.g. 4 or 0.5). Default: the same fraction of the node's cores as of its GPUs "
        "(about a quarter for 2 of 8 GPUs); 1 for a job without GPUs.",
        "cpu_milli",
        **CORES,
    ),
    JobOption(
        "memory",
        "Memory per node (e.g. 512M or 16G). Default: the same fraction of the node's memory as of its GPUs "
        "(about a quarter for 2 of 8 GPUs); for a job without GPUs, the same fraction as of the CPU cores.",
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
        "Smallest number of nodes on which the job may start if fewer nodes than --nodes are "
        "free. Default: the value of --nodes.",
        "gang.min_nodes",
        **COUNT,
    ),
    JobOption(
        "assembly_time",
        "How long the job waits until all nodes of --nodes are free. After this time, the job may start on "
        "fewer nodes, but at least on --min-nodes. Default: 0s.",
        "gang.assembly_s",
        **TIME,
    ),
    JobOption(
        "on_member_failure",
        "What to do if the job fails on one of its nodes: fail (end it on all nodes), continue "
        "(on the other nodes), or restart (on all nodes). Default: fail.",
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
        "Use only GPUs of this model (e.g. H100). May be repeated, to allow several models.",
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
        "Name a data set that the job reads (e.g. imagenet or imagenet:150G). The job prefers nodes on which "
        "jobs have read the data set lately, and nodes with the label data/NAME. May be repeated.",
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
        "label",
        "Label of the job. The options --near, --apart and --over of other jobs select jobs by label. "
        "May be repeated.",
        "labels",
        metavar="KEY=VALUE",
        read=amounts.pair,
        title="labels",
        **SUM,
    ),
    JobOption(
        "comment",
        "Note about the job, shown by 'corral job show'.",
        "comment",
        metavar="TEXT",
        title="comment",
    ),
    JobOption(
        "near",
        "Run where a job with this label runs: on the same node ('app=ps on node'), or on a node "
        "with the same value of a node label ('app=ps on rack'). Add ':prefer' to make this a "
        "preference. May be repeated.",
        "company",
        read=lambda text: parse_job_term(text, 1),
        show=option_texts.job_terms("near"),
        **TERM,
    ),
    JobOption(
        "apart",
        "Run where no job with this label runs: not on the same node ('app=db on node'), or not "
        "in the same rack ('app=db on rack'). Later, jobs of other users with this label may still start "
        "there. May be repeated.",
        "company",
        read=lambda text: parse_job_term(text, None),
        show=option_texts.job_terms("apart"),
        **TERM,
    ),
    JobOption(
        "over",
        "Spread this job and all jobs with this label over exactly N values of a node label, for "
        "example over two racks: 'app=db on rack=2'. May be repeated.",
        "company",
        read=lambda text: parse_job_term(text, 0),
        show=option_texts.job_terms("over"),
        **TERM,
    ),
    JobOption(
        "same",
        "Use nodes that all have the same value of this node label (e.g. rack). LABEL:prefer makes it "
        "a preference.",
        "topology",
        metavar="LABEL",
        read=lambda text: parse_topology(text, 1),
        show=option_texts.topology("same"),
    ),
    JobOption(
        "different",
        "Use nodes that all have different values of this node label (e.g. rack). LABEL:prefer makes "
        "it a preference.",
        "topology",
        metavar="LABEL",
        read=lambda text: parse_topology(text, None),
        show=option_texts.topology("different"),
    ),
    JobOption(
        "domains",
        "Divide the job's nodes evenly over N values of this node label (e.g. rack=2: two racks).",
        "topology",
        metavar="LABEL=N",
        read=parse_domains,
        show=option_texts.topology("domains"),
    ),
    JobOption(
        "select",
        "Use only nodes with this label. May be repeated.",
        "selector",
        metavar="KEY=VALUE",
        read=amounts.pair,
        **SUM,
    ),
    JobOption(
        "affinity",
        "Use only nodes whose labels match a condition: 'zone in a,b', 'zone not in a', 'disk "
        "exists', 'disk missing' or 'cores > 64'. May be repeated; all conditions must match.",
        read=parse_term,
        **TERM,
    ),
    JobOption(
        "prefer",
        "Prefer nodes whose labels match a condition, written as for --affinity. A weight from 1 "
        "to 100 may follow (e.g. 'zone in a weight 80'); its default is 50. May be repeated.",
        "preferences",
        read=parse_preference,
        title="prefers nodes",
        **TERM,
    ),
    JobOption(
        "tolerate",
        "Tolerate node taints, written as KEY=VALUE:EFFECT, KEY=VALUE, KEY or '*' (all taints). "
        "May be repeated.",
        "tolerations",
        metavar="TAINT",
        read=parse_toleration,
        title="tolerates",
        **SUM,
    ),
    JobOption(
        "env",
        "Environment of the job: KEY=VALUE sets a variable, KEY copies a variable of your shell, "
        "'all' copies all variables of your shell, 'none' copies no variables. Default: the variables "
        "of an activated "
        "venv or conda environment. May be repeated.",
        metavar="KEY[=VALUE]",
        **SUM,
    ),
    JobOption(
        "umask",
        "Umask of the job: the permission bits that new files do not get (e.g. 027). Default: your umask.",
        metavar="MODE",
        read=umask,
        show=lambda value: [f"{value:03o}"],
        title="umask",
    ),
    JobOption(
        "output",
        "Write stdout to this file, and stderr too if --error is not given. A relative path "
        "starts at --workdir. In the path, %j is the job id, %A the array id, %a the array index,"
        " %x the job name, %N the node and %u the user.",
        metavar="FILE",
        title="stdout to",
    ),
    JobOption(
        "error",
        "Write stderr to this file. The path may contain the same patterns as that of --output.",
        metavar="FILE",
        title="stderr to",
    ),
    JobOption(
        "open_mode",
        "How to open the files of --output and --error: append or truncate. Default: the first "
        "attempt of the job truncates them, and later attempts append.",
        metavar="MODE",
        title="open mode",
    ),
    JobOption(
        "separate_output",
        "Keep stdout and stderr in separate logs. Default: one log for both.",
        "merge_output",
        **NEGATED,
    ),
    JobOption(
        "batch",
        "Run the command only on the first node. The command may start programs on the job's other nodes.",
        **SWITCH,
    ),
    JobOption("workdir", "Directory to run in. Default: the current directory.", **DIR),
    JobOption(
        "image",
        "Run the job in this container image (e.g. nvcr.io/nvidia/pytorch:24.01). Default: no container.",
        metavar="IMAGE",
        title="image",
    ),
    JobOption(
        "mount",
        "Mount a directory of the host in the container, in addition to --workdir. If a second directory "
        "follows, it is the path in the container. ':ro' means read-only. May be repeated.",
        "mounts",
        metavar="DIR[:DIR][:ro]",
        title="mounts",
        **SUM,
    ),
    JobOption(
        "time",
        "Time limit of the job (e.g. 2h30m, 90s, 01:30:00 or 1-12:00:00). Default: the limit of the "
        "queue, or none.",
        "time_limit_s",
        **TIME,
    ),
    JobOption(
        "time_min",
        "Let the scheduler shorten the time limit to this time at the least, if the job can then start "
        "earlier, before the resources are needed for another job.",
        "time_min_s",
        title="least time limit",
        **TIME,
    ),
    JobOption(
        "grace", "Time between SIGTERM and SIGKILL when the job is stopped. Default: 10s.", "grace_s", **TIME
    ),
    JobOption(
        "checkpoint_command",
        "Run this command to save the job's state before the job is stopped.",
        metavar="COMMAND",
        read=amounts.words,
        show=option_texts.command,
    ),
    JobOption(
        "checkpoint_signal",
        "Send this signal (e.g. USR1) before the job is stopped. The job saves its state when it gets "
        "the signal.",
        **SIGNAL,
    ),
    JobOption(
        "checkpoint_dir",
        "Directory for checkpoints; a job uses its subdirectory DIR/<job id>. Default: "
        "corral-checkpoints in --workdir.",
        title="checkpoints in",
        **DIR,
    ),
    JobOption(
        "checkpoint_time",
        "Longest time that saving the job's state may take. Default: 60s.",
        "checkpoint_s",
        **TIME,
    ),
    JobOption(
        "checkpoint_keep",
        "Keep only the newest N checkpoints of the job. Default: keep all.",
        title="checkpoints kept",
        **COUNT,
    ),
    JobOption(
        "checkpoint_every",
        "Let the running job save a checkpoint at this interval, with --checkpoint-command or "
        "--checkpoint-signal. Default: only before the job is stopped.",
        "checkpoint_every_s",
        title="saves every",
        **TIME,
    ),
    JobOption(
        "checkpoint_size",
        "Keep only the newest checkpoints of the job that are together at most this large (e.g. 200G), "
        "and always "
        "the newest one. Default: no limit.",
        "checkpoint_mib",
        title="checkpoint size",
        **SIZE,
    ),
    JobOption(
        "liveness_command",
        "Check the job with this command, which runs like a command of 'corral exec' on its first node. "
        "The check "
        "passes with exit code 0.",
        "health.command",
        metavar="COMMAND",
        read=amounts.words,
        show=option_texts.command,
    ),
    JobOption(
        "liveness_http",
        "Check the job with a request to this http:// URL from its first node. The check passes with a "
        "status "
        "below 400.",
        "health.url",
        metavar="URL",
    ),
    JobOption(
        "liveness_file",
        "Check that this file on the job's first node has changed recently (see --liveness-file-age). A "
        "relative "
        "path begins in --workdir.",
        "health.file",
        metavar="FILE",
    ),
    JobOption(
        "liveness_file_age",
        "Time without a change after which the check of --liveness-file fails. Default: 10m.",
        "health.file_age_s",
        **{**TIME, "show": option_texts.other_than(HEALTH.file_age_s, option_texts.time_span)},
    ),
    JobOption(
        "liveness_every",
        "Time between two liveness checks. Default: 10s.",
        "health.every_s",
        **{**TIME, "show": option_texts.other_than(HEALTH.every_s, option_texts.time_span)},
    ),
    JobOption(
        "liveness_timeout",
        "Time after which a liveness check without a result has failed. Default: 5s.",
        "health.timeout_s",
        **{**TIME, "show": option_texts.other_than(HEALTH.timeout_s, option_texts.time_span)},
    ),
    JobOption(
        "liveness_failures",
        "Number of failed liveness checks in a row after which the job is unhealthy. Default: 3.",
        "health.failures",
        **{**COUNT, "show": option_texts.other_than(HEALTH.failures, option_texts.any_value)},
    ),
    JobOption(
        "liveness_grace",
        "Time after the start in which failed liveness checks do not count, until one has passed. "
        "Default: 60s.",
        "health.start_s",
        **{**TIME, "show": option_texts.other_than(HEALTH.start_s, lambda seconds: [f"{seconds:g}s"])},
    ),
    JobOption(
        "liveness_action",
        "What happens to an unhealthy job: restart (it is stopped and queued again, up to the number of "
        "--restart), "
        "fail (it is stopped), policy (--restart decides) or notify (an event, and the job goes on). "
        "Default: "
        "restart.",
        "health.action",
        metavar="ACTION",
        read=amounts.member(HealthAction),
    ),
    JobOption(
        "warn_signal",
        "Send this signal (e.g. USR1) to the job before its time limit. --warn-time sets how long before "
        "the limit.",
        **SIGNAL,
    ),
    JobOption(
        "warn_time",
        "Time between the signal of --warn-signal and the time limit. Default: 60s.",
        "warn_s",
        **TIME,
    ),
    JobOption("not_preemptible", "Never preempt this job for another job.", "preemptible", **NEGATED),
    JobOption(
        "min_runtime",
        "Do not preempt the job for this time after each of its starts. Default: 0s.",
        "min_runtime_s",
        **TIME,
    ),
    JobOption(
        "array",
        "Submit a job array with one job for each index (e.g. '0-9', '1,3,7' or '0-20:5'). "
        "%N at the end limits how many of the jobs run at a time (e.g. '0-99%8').",
        metavar="INDICES",
        title="array",
    ),
    JobOption(
        "begin",
        "Earliest start of the job (e.g. 18:30, 2030-05-01, 2030-05-01T08:00 or +2h).",
        "begin_at",
        **WHEN,
    ),
    JobOption(
        "deadline",
        "Time by which the job must have ended, written as for --begin. The job is ended at this "
        "time. A waiting job is ended earlier if it can no longer complete by this time.",
        "deadline_at",
        **WHEN,
    ),
    JobOption(
        "timeout",
        "End the job if it has waited this long for free resources (e.g. 2h). The time before --begin, the "
        "wait for --after, and the time in which the job is held do not count.",
        "start_within_s",
        **TIME,
    ),
    JobOption(
        "restart",
        "When to run the job again: never, on-hardware (after a GPU failure), on-failure or "
        "always. N is the largest number of restarts. Default: on-hardware:3.",
        "restart.policy",
        metavar="POLICY[:N]",
        show=option_texts.restart_policy,
    ),
    JobOption(
        "restart_delay",
        "Time to wait before a restart (see --restart). The wait is FIRST before the "
        "first restart, and doubles with each further restart up to MAX. The wait is FIRST again "
        "after a long attempt: one that ran for at least 10 minutes, and for at least 10 times the wait "
        "before it. Default: 10s:10m.",
        "restart.delay",
        metavar="FIRST[:MAX]",
        show=option_texts.restart_delay,
    ),
    JobOption(
        "restart_codes",
        "Restart the job only after these exit codes (e.g. 75,130-137). Default: any exit code.",
        "restart.codes",
        metavar="CODES",
        show=lambda codes: [",".join(map(str, codes))] if codes else [],
    ),
    JobOption(
        "on_node_lost",
        "What to do if the job's node stops reporting: wait (until the node reports again), "
        "requeue-after-lease (when the job's lease is over, the node ends the job, and the job is queued "
        "again), or manual (queue the job again when an operator declares the node lost). Default: the "
        "setting of the controller.",
        metavar="POLICY",
        read=amounts.member(OnNodeLost),
    ),
    after_option(
        "after",
        "JOBS",
        "Start after all these jobs (e.g. 12,13_3) have started. The id of an array means all jobs of "
        "the array.",
    ),
    after_option(
        "after_ok",
        "JOBS",
        "Start after all these jobs (e.g. 12,13_3) have completed. If one of them fails, the new job is "
        "cancelled.",
    ),
    after_option(
        "after_not_ok", "JOBS", "Start after all these jobs (e.g. 12,13_3) have failed or been cancelled."
    ),
    after_option(
        "after_end", "JOBS", "Start after all these jobs (e.g. 12,13_3) have ended, with any result."
    ),
    after_option(
        "after_checkpoint", "JOBS", "Start after all these jobs (e.g. 12,13_3) have saved a checkpoint."
    ),
    after_option("after_data", "PATH", "Start after this file or directory exists. May be repeated."),
    JobOption(
        "after_count",
        "Start as soon as N conditions of the --after options are met. Each job and each path is one "
        "condition. Default: all conditions.",
        **COUNT,
    ),
    JobOption(
        "after_timeout",
        "Cancel the job if it waits longer than this for the conditions of its --after options.",
        "after_within_s",
        **TIME,
    ),
    JobOption(
        "relax",
        "Drop this requirement of the job if the job still waits after --relax-after. OPTION is select, "
        "gpu-model, affinity or nodes. May be repeated.",
        metavar="OPTION",
        read=_relaxable,
        **LIST,
    ),
    JobOption(
        "relax_after",
        "How long the job waits in the queue before the requirements of --relax are dropped. Default: 30m.",
        "relax_after_s",
        **TIME,
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
        "Request almost no CPU and memory; the job may use all CPU and memory that other jobs leave idle.",
        **SWITCH,
    ),
    JobOption(
        "mail_user",
        "Address for mail about the job. Default: the user that submits the job.",
        metavar="ADDRESS",
        title="mail to",
    ),
    JobOption(
        "mail_type",
        "Events about which mail is sent, separated by commas: BEGIN, END, FAIL, REQUEUE, TIME_LIMIT, "
        "TIME_LIMIT_90, TIME_LIMIT_80, TIME_LIMIT_50, INVALID_DEPEND, ARRAY_TASKS, ALL or NONE. "
        "Default: NONE.",
        "mail_types",
        metavar="EVENTS",
        read=mail_types,
        show=option_texts.commas,
        title="mail",
    ),
    JobOption("hold", "Hold the job, so that it does not start before 'corral job release'.", **SWITCH),
)

OPTIONS: Mapping[str, JobOption] = {option.name: option for option in _ROWS}
BY_FLAG: Mapping[str, JobOption] = {option.flag: option for option in _ROWS}


def _flags_of_fields() -> dict[str, str]:
    """Return, for each field of JobSpec such as `cpu_milli` or `gpu.numa`, the flag that sets it. If several
    flags set the field, return the first of them in the table.
    """
    found = {"restart": "--restart", "topology.domains": "--domains"}
    for option in _ROWS:
        found.setdefault(f"{option.field}.{option.part}" if option.part else option.field, option.flag)
    return {**found, "gpus": "--gpus"}


FLAG_OF_FIELD: Mapping[str, str] = _flags_of_fields()
