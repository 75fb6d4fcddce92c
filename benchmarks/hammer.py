"""Many concurrent clients in one process: `python -m benchmarks.hammer URL THREADS EACH SPEC`."""

from __future__ import annotations

import json
import sys
import threading

from wire.codec import decode
from wire.http.client import Client
from wire.job.spec import JobSpec


def main(url: str, threads: int, each: int, spec: JobSpec) -> None:
    """Say `ready`, wait for a line, then submit from all threads."""

    def work() -> None:
        client = Client(url)
        for _ in range(each):
            client.submit(spec)

    crew = [threading.Thread(target=work) for _ in range(threads)]
    print("ready", flush=True)
    sys.stdin.readline()
    for thread in crew:
        thread.start()
    for thread in crew:
        thread.join()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), decode(JobSpec, json.loads(sys.argv[4])))
