"""A small training run to try Corral with: standard library only, with or without a GPU.

It fits a line to noisy points by gradient descent, prints its progress, saves a checkpoint where it
may, and goes on from the checkpoint of an earlier attempt.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="how long an epoch takes")
    asked = parser.parse_args()

    found = os.environ.get("CORRAL_CHECKPOINT")
    state = json.loads(Path(found).read_text()) if found else {"epoch": 0, "slope": 0.0, "offset": 0.0}
    gpus = os.environ.get("CUDA_VISIBLE_DEVICES") or "none"
    memory = os.environ.get("CORRAL_MEMORY_MIB", "?")
    print(f"job {os.environ.get('CORRAL_JOB_ID', '-')}: GPUs {gpus}, memory {memory} MiB", flush=True)

    random.seed(7)
    points = [(x / 100, 3.0 * x / 100 - 1.0 + random.gauss(0, 0.05)) for x in range(-100, 100)]
    while state["epoch"] < asked.epochs:
        end = time.monotonic() + asked.seconds
        loss = 0.0
        while time.monotonic() < end:
            loss = step(state, points)
        state["epoch"] += 1
        print(f"epoch {state['epoch']}/{asked.epochs}  loss {loss:.5f}", flush=True)
        save(state)
    print(f"done: y = {state['slope']:.2f} x {state['offset']:+.2f}")


def step(state: dict[str, float], points: list[tuple[float, float]]) -> float:
    """One step of gradient descent; the loss before it."""
    errors = [(state["slope"] * x + state["offset"] - y, x) for x, y in points]
    state["slope"] -= 0.1 * sum(error * x for error, x in errors) / len(points)
    state["offset"] -= 0.1 * sum(error for error, _ in errors) / len(points)
    return sum(error * error for error, _ in errors) / len(points)


def save(state: dict[str, float]) -> None:
    """Write the checkpoint under a hidden name first, so that half a file is never taken for a whole one."""
    folder = os.environ.get("CORRAL_CHECKPOINT_DIR")
    if folder:
        unfinished = Path(folder) / ".unfinished"
        unfinished.write_text(json.dumps(state))
        unfinished.rename(Path(folder) / f"epoch-{state['epoch']:04}.json")


if __name__ == "__main__":
    main()
