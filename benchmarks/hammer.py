"""Submits jobs from many threads at the same time: `python -m benchmarks.hammer URL THREADS JOBS_PER_THREAD
SPEC`, where SPEC is a JobSpec as JSON.
"""

from __future__ import annotations

import json
import sys
import threading

from wire.codec import decode
from wire.http.client import Client
from wire.job.spec import JobSpec


def main(url: str, threads: int, each: int, spec: JobSpec) -> None:
    """Print `ready` and wait for a line on stdin. Then submit `each` jobs from each thread."""

    def work() -> None:
        client = Client(url)
        for _ in range(each):
            client.submit(spec)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    print("ready", flush=True)
    sys.stdin.readline()
    for thread in workers:
        thread.start()
    for thread in workers:
        thread.join()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), decode(JobSpec, json.loads(sys.argv[4])))
