"""The options of corral submit, such as --after-ok, that can be columns of a job table for corral sim."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cli.exit_codes import CommandError
from cli.spec.dependencies_and_restarts import AFTER
from cli.spec.option_sources import OptionText
from cli.spec.spec_builder import flag_of, read_fields
from cli.spec.submit_options.table import OPTIONS
from controller.sim.logs.gpu_job_table import SEPARATOR, OptionColumns

_NAMES = (
    "array",
    "timeout",
    "min_nodes",
    "assembly_time",
    "elastic",
    "mixed_models",
    "gpu_memory",
    "min_gpu_memory",
    "compute",
    "mig",
    "numa",
    "nvlink",
    "data",
    "licence",
    "label",
    "near",
    "apart",
    "over",
    "same",
    "different",
    "domains",
    "select",
    "affinity",
    "prefer",
    "tolerate",
    "scratch",
    "min_runtime",
    "restart",
    "restart_delay",
    "restart_codes",
    "on_node_lost",
    "relax",
    "relax_after",
)
"""The options that can change the start or the nodes of a simulated job, without options whose value depends
on the present time. Options that name other jobs are in _DEPENDENCIES and _AFTER_ALL.
"""
_DEPENDENCIES = tuple(name for name in AFTER if name != "after_data")
_AFTER_ALL = ("after_count", "after_timeout")


def option_columns() -> OptionColumns:
    """Return the columns of a job table with the names of options of `corral submit`, such as after_ok."""
    return OptionColumns(_NAMES, _DEPENDENCIES, _AFTER_ALL, _read, _column_of)


def _read(cells: Mapping[str, str]) -> dict[str, Any]:
    """Return a dict from each JobSpec field that one row sets to its value. `cells` is a dict from column
    name to the text of the row's cell. Raise ValueError for a cell that cannot be read.
    """
    options = {
        name: [
            OptionText(each.strip(), name)
            for each in (text.split(SEPARATOR) if OPTIONS[name].repeats else [text])
        ]
        for name, text in cells.items()
    }
    try:
        return read_fields(options)[0]
    except CommandError as error:
        raise ValueError(error.message) from None


def _column_of(field: str) -> str:
    return flag_of(field).removeprefix("--").replace("-", "_")
