"""Options for the program of a job: its environment, its output, its directory and its container image."""

from __future__ import annotations

from cli.spec.submit_options.job_option import DIR, NEGATED, SUM, SWITCH, JobOption, umask

ROWS: tuple[JobOption, ...] = (
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
        "Write stderr to this file. The path may contain the same patterns as the path of --output.",
        metavar="FILE",
        title="stderr to",
    ),
    JobOption(
        "open_mode",
        "How to open the files of --output and --error: append or truncate. Default: the first attempt of "
        "the job truncates the files, and later attempts append to the files.",
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
    JobOption("workdir", "Working directory of the job. Default: the current directory.", **DIR),
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
)
