"""Runs the fuzzer on a controller with two nodes: python -m tests.fuzz --minutes 10 --seed 7.

The exit code is 1 if a request got a wrong answer, if the controller ended or logged a traceback, or if it
schedules no job afterwards.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from tests.fuzz.fuzzer import Findings, Fuzzer
from tests.systems import System, system
from wire.api.nodes import NodeMarks
from wire.api.service.access import TokenRequest
from wire.http.client import Client, Refused
from wire.job.spec import JobSpec


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    findings, problems = fuzz(options.minutes * 60.0, options.seed)
    statuses = ", ".join(f"{status}: {count}" for status, count in sorted(findings.requests.items()))
    print(
        f"{sum(findings.requests.values())} requests to {len(findings.routes)} routes; by status: {statuses}"
    )
    for each in [*findings.bad, *problems]:
        print(each)
    return 1 if findings.bad or problems else 0


def fuzz(seconds: float, seed: int) -> tuple[Findings, list[str]]:
    """Run the fuzzer on a system of its own. Return what it has seen, and problems of the controller."""
    with system("gpu01", "gpu02") as site:
        site.sections["api"] = {"listen": "127.0.0.1:0"}
        site.sections["access"] = {"operators": ["ops"], "robots": {"ci": {"user": "bo"}}}
        site.sections["projects"] = {"vision": {"members": ["ada"], "operators": ["ada"]}, "speech": {}}
        site.sections["queues"] = {"short": {"priority": 10}}
        site.start()
        with site.client() as client:
            url = client.controllers().leader
            tokens = _tokens(site, client)
            document = json.loads(client._transport.ask("GET", "/v1/openapi.json", None, (), question=True))
        findings = asyncio.run(Fuzzer(url, document, tokens, seed).run(seconds))
        return findings, _problems(site)


def _tokens(site: System, client: Client) -> Mapping[str, str]:
    """Return a token of each role."""
    every = ("read", "output", "submit", "change", "exec")

    def token(name: str, **more: Any) -> str:
        return client.create_token(TokenRequest(name, **more)).text

    return {
        "admin": (site.state / "token").read_text().strip(),
        "read-only admin": (site.state / "token.read").read_text().strip(),
        "operator": token("ops", can=(*every, "operate"), user="ops"),
        "user ada": token("ada", can=every, user="ada"),
        "user bo": token("bo", can=every, user="bo"),
        "vision only": token("vision", can=every, user="ada", projects=("vision",)),
        "reader": token("reader", can=("read",), user="bo"),
        "robot": token("robot", can=("read", "submit"), robot="ci"),
        "nobody": "",
        "wrong token": "corral_user_aaaaaaaaaa_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa_00000000",
    }


def _problems(site: System) -> list[str]:
    """Check that the controller runs, has logged no traceback, and starts a job of an empty cluster."""
    if site.controller.poll() is not None:
        return [f"the controller ended with code {site.controller.poll()}\n{site.log_end()}"]
    found = []
    log = site.log.read_text(errors="replace")
    for word in ("Traceback", "met a bug", "quarantined"):
        if word in log:
            place = log.index(word)
            found.append(f"{log.count(word)} times in the log: {log[max(0, place - 500) : place + 3_000]}")
    try:
        _start_a_job(site)
    except Exception as error:
        found.append(f"no job starts afterwards: {type(error).__name__}: {error}")
    return found


def _start_a_job(site: System) -> None:
    """Undo what the fuzzer may have ordered, and wait until a job has started."""
    with site.client() as client:
        for each in client.reservations().reservations:
            client.cancel_reservation(each.spec.name)
        for node in client.nodes().nodes:
            for gpu in node.gpus:
                with suppress(Refused):  # because the GPU is not cordoned
                    client.resume_gpu(node.name, str(gpu.index))
            with suppress(Refused):  # because the node is not drained
                client.resume(node.name)
            client.mark(node.name, NodeMarks({}, dict.fromkeys(node.taints)))
        ids = client.submit(JobSpec(command=("true",), gpus=1.0, priority=100)).ids
    site.await_jobs(ids)


if __name__ == "__main__":
    sys.exit(main())
