"""The table of all options of `corral submit`. One row defines the flag, the JobSpec field, and the
printing of its value.

1. The `name` of a row gives the flag (`--gpu-model`), the same flag in a #CORRAL line, and the environment
   variable (`CORRAL_SUBMIT_GPU_MODEL`). `sbatch/directives.py` translates #SBATCH lines to these names.
2. `read` parses a text into the value of the JobSpec field `field`. `read` raises a ValueError with the valid
   values if the text is invalid. `show` converts the value back to the texts of the flag.

Example: `--memory 16G`, `#CORRAL --memory=16G` and CORRAL_SUBMIT_MEMORY=16G all set `memory_mib` to 16384. A
suggestion to halve the memory is `corral job set 7 --memory 8G`. A new option is one new row in the module of
its subject in this package.
"""

from __future__ import annotations

from collections.abc import Mapping

from cli.spec.submit_options import (
    checkpoints,
    identity,
    liveness,
    placement,
    program,
    resources,
    run_time,
    start_conditions,
)
from cli.spec.submit_options.job_option import JobOption

_ROWS: tuple[JobOption, ...] = (
    *identity.ROWS,
    *resources.ROWS,
    *placement.ROWS,
    *program.ROWS,
    *run_time.ROWS,
    *checkpoints.ROWS,
    *liveness.ROWS,
    *start_conditions.ROWS,
)

OPTIONS: Mapping[str, JobOption] = {option.name: option for option in _ROWS}
BY_FLAG: Mapping[str, JobOption] = {option.flag: option for option in _ROWS}


def _flags_of_fields() -> dict[str, str]:
    """Return a dict from each JobSpec field, such as `cpu_milli` or `gpu.numa`, to the flag that sets the
    field. If several flags set a field, take the first of these flags in the table.
    """
    found = {"restart": "--restart", "topology.domains": "--domains"}
    for option in _ROWS:
        found.setdefault(f"{option.field}.{option.part}" if option.part else option.field, option.flag)
    return {**found, "gpus": "--gpus"}


FLAG_OF_FIELD: Mapping[str, str] = _flags_of_fields()
