"""The table of sbatch's options, with the letter of each option and whether the option has a value, and a
table of the environment variables that set options.
"""

from __future__ import annotations

from collections.abc import Mapping

from cli.slurm.arguments import Option, Value, switch

JOB_OPTIONS = (
    Option("account", "A", help="Account (project) of the job."),
    Option("acctg-freq"),
    Option("array", "a", help="Indices of a job array, such as 0-99%8."),
    Option("bb"),
    Option("bbf"),
    Option("begin", "b", help="Start after this time, such as 22:00 or now+1hour."),
    Option("cluster-constraint"),
    Option("clusters", "M"),
    Option("comment", help="A comment about the job."),
    Option("constraint", "C", help="Use only nodes with these GPU models, such as 'a100|h100'."),
    Option("container"),
    Option("container-image"),
    Option("container-mounts"),
    Option("container-workdir"),
    switch("contiguous"),
    Option("core-spec", "S"),
    Option("cores-per-socket"),
    Option("cpu-bind"),
    Option("cpu-freq"),
    Option("cpus-per-gpu", help="CPUs for each GPU."),
    Option("cpus-per-task", "c", help="CPUs for each task."),
    Option("chdir", "D", help="Working directory of the job."),
    Option("deadline", help="Cancel the job if it cannot end before this time."),
    Option("delay-boot"),
    Option("dependency", "d", help="Wait for other jobs, such as afterok:12:13."),
    Option("distribution", "m"),
    Option("error", "e", help="File for stderr."),
    Option("exclude", "x", help="Nodes that the job must not use."),
    Option("exclusive", "", Value.OPTIONAL),
    Option("export", help="Variables that the job gets: ALL, NONE, NAME or NAME=VALUE, separated by commas."),
    Option("export-file"),
    Option("extra-node-info", "B"),
    Option("get-user-env", "", Value.OPTIONAL),
    Option("gid"),
    Option("gpu-bind"),
    Option("gpu-freq"),
    Option("gpus", "G", help="GPUs of the job on all nodes together."),
    Option("gpus-per-node", help="GPUs on each node."),
    Option("gpus-per-socket"),
    Option("gpus-per-task", help="GPUs for each task."),
    Option("gres", help="GPUs on each node, such as gpu:2 or gpu:h100:2."),
    Option("gres-flags"),
    Option("hint"),
    switch("hold", "H", "Hold the job, so that it does not start before 'scontrol release'."),
    switch("ignore-pbs"),
    Option("input", "i"),
    Option("job-name", "J", help="Name of the job."),
    Option("kill-on-invalid-dep"),
    Option("licenses", "L", help="Licences that the job holds, such as matlab:2."),
    Option("mail-type", help="Events about which mail is sent, such as END,FAIL."),
    Option("mail-user", help="Address to which mail about the job is sent."),
    Option("mcs-label"),
    Option("mem", help="Memory on each node, such as 16G. Without a unit: MiB."),
    Option("mem-bind"),
    Option("mem-per-cpu", help="Memory for each CPU, such as 2G. Without a unit: MiB."),
    Option("mem-per-gpu", help="Memory for each GPU, such as 40G. Without a unit: MiB."),
    Option("mincpus"),
    Option("network"),
    Option("nice", "", Value.OPTIONAL, "Lower the priority of the job."),
    Option("no-kill", "k", Value.OPTIONAL),
    switch("no-requeue", "", "Do not queue the job again after the loss of a node."),
    Option("nodefile", "F"),
    Option("nodelist", "w", help="Nodes that the job may use, such as gpu[01-04]."),
    Option("nodes", "N", help="Number of nodes of the job, or MIN-MAX."),
    Option("ntasks", "n", help="Number of tasks on all nodes together."),
    Option("ntasks-per-core"),
    Option("ntasks-per-gpu", help="Tasks for each GPU."),
    Option("ntasks-per-node", help="Tasks on each node."),
    Option("ntasks-per-socket"),
    Option("open-mode", help="How to open output files: append or truncate."),
    Option("output", "o", help="File for stdout. Default: slurm-%j.out."),
    switch("overcommit", "O"),
    switch("oversubscribe", "s"),
    switch("share"),
    Option("partition", "p", help="Partition (queue) of the job."),
    Option("power"),
    Option("prefer"),
    Option("priority"),
    Option("profile"),
    Option("propagate", "", Value.OPTIONAL),
    Option("qos", "q"),
    switch("reboot"),
    switch("requeue", "", "Queue the job again after the loss of a node."),
    Option("reservation", help="Reservation in which the job runs."),
    Option("signal", help="Send this signal before the time limit, such as USR1@120 (120 s before it)."),
    Option("sockets-per-node"),
    switch("spread-job"),
    Option("switches"),
    Option("thread-spec"),
    Option("threads-per-core"),
    Option("time", "t", help="Time limit: minutes, MM:SS, HH:MM:SS or D-HH:MM:SS."),
    Option("time-min", help="The shortest time limit that the job accepts."),
    Option("tmp", help="Space on the local disk of each node, such as 100G. Without a unit: MiB."),
    Option("tres-per-task"),
    Option("uid"),
    switch("use-min-nodes"),
    Option("wckey"),
)
"""Options of sbatch, srun and salloc that describe a job."""

BATCH_OPTIONS = (
    *JOB_OPTIONS,
    switch("parsable", "", "Print only the id of the job."),
    switch("quiet", "Q", "Print only errors."),
    switch("test-only", "", "Check the job, and do not submit it."),
    switch("verbose", "v"),
    Option("wait-all-nodes"),
    switch("wait", "W", "Wait for the end of the job, and exit with its exit code."),
    Option("wrap", help="Run this command line with /bin/sh."),
)
"""All options of sbatch. They may be written on the command line and in #SBATCH lines."""

SWITCHES = frozenset(option.name for option in BATCH_OPTIONS if option.value is Value.NONE)

INPUT_VARIABLES: Mapping[str, str] = {
    "ACCOUNT": "account",
    "ACCTG_FREQ": "acctg-freq",
    "ARRAY_INX": "array",
    "CLUSTERS": "clusters",
    "CONSTRAINT": "constraint",
    "CPUS_PER_GPU": "cpus-per-gpu",
    "CPUS_PER_TASK": "cpus-per-task",
    "DISTRIBUTION": "distribution",
    "ERROR": "error",
    "EXCLUSIVE": "exclusive",
    "EXPORT": "export",
    "GPUS": "gpus",
    "GPUS_PER_NODE": "gpus-per-node",
    "GPUS_PER_TASK": "gpus-per-task",
    "GRES": "gres",
    "HINT": "hint",
    "INPUT": "input",
    "JOB_NAME": "job-name",
    "MEM_PER_CPU": "mem-per-cpu",
    "MEM_PER_GPU": "mem-per-gpu",
    "MEM_PER_NODE": "mem",
    "NO_REQUEUE": "no-requeue",
    "OPEN_MODE": "open-mode",
    "OUTPUT": "output",
    "OVERCOMMIT": "overcommit",
    "PARTITION": "partition",
    "PROFILE": "profile",
    "QOS": "qos",
    "REQUEUE": "requeue",
    "RESERVATION": "reservation",
    "SIGNAL": "signal",
    "TIMELIMIT": "time",
    "WAIT": "wait",
    "WCKEY": "wckey",
}
"""The option that an environment variable sets, by the name of the variable without its prefix SBATCH_, SRUN_
or SALLOC_.
"""


def from_variables(prefix: str, environment: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Return the options that environment variables set, each as (name of the option, value, name of the
    variable).
    """
    return [
        (name, "" if name in SWITCHES else environment[prefix + suffix], prefix + suffix)
        for suffix, name in INPUT_VARIABLES.items()
        if environment.get(prefix + suffix)
    ]
