"""`python -m agent`: the agent of one node, speaking frames on stdin and stdout."""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import sys
import uuid
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Optional

from agent import cgroups, checkup, containers, host, lease, scratch, tree
from agent.channel import Channel
from agent.gpus import Gpus, NoGpus, UnknownGpus
from agent.later import LaterGpus
from agent.node import Node
from agent.nvml import NoNvml, NvmlGpus
from agent.orders import Accounts
from agent.simulated import SimulatedGpus
from agent.spool import Spool, SpoolUnusable, name_of
from wire import VERSION
from wire.codec import decode
from wire.frames import Hello, NodeFacts
from wire.policy import USUAL, JobPolicy

_UNITS = {"M": 1, "G": 1024, "T": 1024 * 1024}


def main() -> int:
    """Run until the controller is gone; the attempts go on without us."""
    options = _parse(_told() if sys.argv[1:] == ["-"] else None)
    os.umask(0o077)
    found = host.look()
    if options.check:
        sought = partial(_find_gpus, options.gpus, options.name)
        print(
            checkup.report(
                options.spool,
                found,
                sought,
                options.run_as_self,
                options.jobs,
                options.shared,
                options.cluster,
            )
        )
        return 0
    spool = Spool(options.spool, tree.boot_id())
    channel = Channel(0, _claim_stdout())
    try:
        gpus = _find_gpus(options.gpus, options.name)
        spool.open(replace=options.replace, cluster=options.cluster)
    except (SpoolUnusable, UnknownGpus) as error:
        print(f"agent: {error}", file=sys.stderr)
        return 1
    _allow_many_files()
    accounts, policy, offered = Accounts(options.run_as_self), options.jobs, options.cpus or found.cpus
    groups = cgroups.find(policy.limits, cgroups.tag_of(options.name, spool.root))
    runtime = containers.find(policy, gpus.real)
    area = scratch.Area(options.scratch_dir, cgroups.tag_of(options.name, spool.root), options.scratch)
    try:
        node = Node(
            spool, channel, accounts, found, gpus, options.keep, policy, groups, offered, runtime, area
        )
        node.adopt()
    except OSError as error:
        print(f"agent: it cannot begin with the spool directory {spool.root}: {error}", file=sys.stderr)
        return 1
    unsettled = node.unsettled()
    running = [name_of((status.job, status.attempt)) for status in unsettled]
    scratch.sweep(area.leftovers(running))
    storage_mib = area.mib(spool.place((status.job, status.attempt)) for status in unsettled)
    facts = NodeFacts(
        cpu_milli=offered * 1000,
        memory_mib=options.memory or found.memory_mib,
        gpus=gpus.facts,
        numa_nodes=gpus.numa_nodes or max(1, len(found.numa)),
        labels=dict(options.label),
        address=options.address,
        storage_mib=storage_mib,
        driver=gpus.driver,
        cuda=gpus.cuda,
        numa=found.nodes,
        handling={
            "user": accounts.describe(),
            "limits": groups.describe(),
            "end": groups.describe_end(),
            "binding": node.cores.describe(),
            "scratch": area.describe(storage_mib),
            "containers": str(runtime or "none: neither podman, docker nor apptainer works here"),
        },
        runtime="" if runtime is None else str(runtime),
    )
    hello = Hello(
        options.name,
        VERSION,
        spool.boot_id,
        uuid.uuid4().hex,
        facts,
        unsettled,
        lease.clock(),
    )
    with suppress(KeyboardInterrupt):  # somebody tries it by hand
        node.serve(hello)
    groups.tidy()
    return 0


def _told() -> list[str]:
    """The command line as one line of JSON on stdin: no shell on the way can misread it."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)  # no more than the line: what follows are frames
        if not byte or len(line) > 1 << 16:
            raise SystemExit("agent: a line of JSON with the options was expected on stdin")
        line += byte
    return [str(each) for each in json.loads(line)]


def _parse(told: Optional[list[str]]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="agent", description=__doc__)
    parser.add_argument("--name", required=True, help="the node's name")
    parser.add_argument(
        "--spool", required=True, type=Path, metavar="DIR", help="where attempts are recorded"
    )
    parser.add_argument("--gpus", default="auto", help="auto, nvml, none, or simulated:8xH100")
    parser.add_argument("--cpus", type=int, help="cores to offer instead of those found")
    parser.add_argument("--memory", type=_mib, help="memory to offer instead of what is found, such as 512G")
    parser.add_argument("--scratch-dir", default="", metavar="DIR", help="where scratch lies; else /var/tmp")
    parser.add_argument("--scratch", type=_mib, help="scratch to offer instead of what is free, such as 2T")
    parser.add_argument("--label", action="append", default=[], type=_label, metavar="KEY=VALUE")
    parser.add_argument("--address", default="127.0.0.1", help="where other nodes reach this one")
    parser.add_argument("--keep", type=int, default=2_000, help="settled attempts whose logs are kept")
    parser.add_argument("--run-as-self", action="store_true", help="run every job as the agent's own user")
    parser.add_argument("--cluster", default="", metavar="ID", help="whose agent this is; a spool is one's")
    parser.add_argument("--replace", action="store_true", help="end another agent that uses the spool")
    parser.add_argument(
        "--shared", action="append", default=[], metavar="FILE", help="look for it in a check"
    )
    parser.add_argument("--check", action="store_true", help="tell what this host is like, as JSON")
    parser.add_argument("--jobs", default=USUAL, type=_policy, metavar="JSON", help="how to run jobs")
    return parser.parse_args(told)


def _policy(text: str) -> JobPolicy:
    try:
        return decode(JobPolicy, json.loads(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _find_gpus(description: str, node: str) -> Gpus:
    kind, _, rest = description.partition(":")
    if kind == "simulated":
        return SimulatedGpus(node, rest)
    if description == "none":
        return NoGpus()
    if description == "nvml":
        return NvmlGpus()
    if description == "auto":
        try:
            return NvmlGpus()
        except NoNvml:
            return LaterGpus()
    raise UnknownGpus(
        f"there are no GPUs called {description!r}; choose auto, nvml, none or simulated:8xH100"
    )


def _mib(text: str) -> int:
    match = re.fullmatch(r"(\d+)([MGT])(i?B)?", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"cannot read {text!r}; write 512G, 1T or 800M")
    return int(match[1]) * _UNITS[match[2]]


def _label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"cannot read {text!r}; write KEY=VALUE")
    return key, value


def _claim_stdout() -> int:
    """Keep stdout for frames; whatever else prints goes to stderr."""
    frames = os.dup(1)
    os.dup2(2, 1)
    return frames


def _allow_many_files() -> None:
    """A descriptor for every supervisor; the nursery lowers the limit again for the jobs."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


if __name__ == "__main__":
    sys.exit(main())
