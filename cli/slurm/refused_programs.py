"""Programs of Slurm that Corral does not have. Each program prints what to use in Corral instead."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cli.slurm.arguments import VERSION
from cli.slurm.programs import SlurmError

_INSTEAD: Mapping[str, str] = {
    "sdiag": "Corral has no sdiag. Figures of the scheduler: GET /v1/scheduler, /metrics.",
    "sreport": "Corral has no sreport. Reports: corral report month, corral report efficiency, corral usage.",
    "strigger": "Corral has no strigger. Notices of events: the tables [notify] of scheduler.toml, and "
    "corral events --follow.",
}


def _refuse(program: str) -> Callable[[list[str]], int]:
    def main(words: list[str]) -> int:
        if words in (["-V"], ["--version"]):
            print(VERSION)
            return 0
        raise SlurmError(_INSTEAD[program])

    return main


sdiag, sreport, strigger = (_refuse(name) for name in ("sdiag", "sreport", "strigger"))
