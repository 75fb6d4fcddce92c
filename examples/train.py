"""A small training run to try Corral with: standard library only, with or without a GPU.

The program fits a line to noisy points by gradient descent, and prints its progress. If Corral gives the job
a checkpoint directory, the program saves checkpoints there, and continues from the checkpoint of an earlier
attempt.
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
    parser.add_argument("--seconds", type=float, default=1.0, help="seconds that one epoch takes")
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
    """Do one step of gradient descent, and return the loss before this step."""
    errors = [(state["slope"] * x + state["offset"] - y, x) for x, y in points]
    state["slope"] -= 0.1 * sum(error * x for error, x in errors) / len(points)
    state["offset"] -= 0.1 * sum(error for error, _ in errors) / len(points)
    return sum(error * error for error, _ in errors) / len(points)


def save(state: dict[str, float]) -> None:
    """Write a checkpoint. The file has a hidden name until it is complete, so that Corral does not use an
    incomplete file.
    """
    folder = os.environ.get("CORRAL_CHECKPOINT_DIR")
    if folder:
        unfinished = Path(folder) / ".unfinished"
        unfinished.write_text(json.dumps(state))
        unfinished.rename(Path(folder) / f"epoch-{state['epoch']:04}.json")


if __name__ == "__main__":
    main()
