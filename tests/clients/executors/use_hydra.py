"""Uses hydra-submitit-launcher as its documentation shows: a sweep as an array of jobs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import hydra


@hydra.main(version_base=None, config_name=None, config_path=None)
def train(config: Any) -> None:
    """One run of the sweep."""
    place = Path(os.environ["SLURM_SUBMIT_DIR"]) / f"result-{config.lr}"
    place.write_text(f"{config.lr * 10} {os.environ['SLURM_ARRAY_TASK_ID']}")


if __name__ == "__main__":
    train()
