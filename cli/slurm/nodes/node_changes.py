"""Changes the states of nodes for `scontrol update NodeName=n1 State=DRAIN Reason=TEXT`."""

from __future__ import annotations

import sys

from cli.slurm.programs import SlurmError
from cli.slurm.selections import hosts
from wire.http.client import Client, Refused

_DRAIN = ("drain", "draining", "drained")
_RESUME = ("resume", "undrain", "idle")
_ELSEWHERE = {
    "down": "Write: State=DRAIN Reason=TEXT, or for a dead host: corral nodes lost NODE",
    "fail": "Write: State=DRAIN Reason=TEXT",
    "future": "Write: corral nodes add HOST, when the host exists",
    "power_down": "Corral does not switch nodes off",
    "power_up": "Corral does not switch nodes on",
}
"""States that scontrol can set in Slurm but not in Corral, each with advice for the error message."""


def update_nodes(words: list[str]) -> int:
    """Drain or resume the nodes of NodeName. Return 1 if the controller refused a node."""
    pairs = dict(_pair(word) for word in words)
    names = hosts(pairs.pop("nodename"))
    state, reason = pairs.pop("state", "").lower(), pairs.pop("reason", "")
    for key, value in pairs.items():
        raise _aborted(f"Update of this parameter is not supported: {key}={value}")
    if state in _DRAIN and not reason:
        raise _printed("You must specify a reason when DOWNING or DRAINING a node. Request denied")
    if state not in (*_DRAIN, *_RESUME):
        raise _aborted(f"Corral sets State=DRAIN and State=RESUME. {_ELSEWHERE.get(state, '')}".rstrip())
    code = 0
    with Client() as client:
        for name in names:
            try:
                client.drain(name, reason) if state in _DRAIN else client.resume(name)
            except Refused as refused:
                problem = refused.problem
                # Print no error, because in Slurm it is no error to resume a node that is not drained.
                if problem.code == "conflict" and state in _RESUME:
                    continue
                words_of = {
                    "not_found": "Invalid node name specified",
                    "not_allowed": "Access/permission denied",
                }
                print(f"slurm_update error: {words_of.get(problem.code, problem.message)}", file=sys.stderr)
                code = 1
    return code


def _pair(word: str) -> tuple[str, str]:
    key, equals, value = word.partition("=")
    if not equals:
        raise _aborted(f"Invalid input: {word}")
    return key.lower(), value


def _aborted(line: str) -> SlurmError:
    return _printed(line, "Request aborted")


def _printed(*lines: str) -> SlurmError:
    """Print the lines, and return an error without lines. scontrol prints these lines without `scontrol:
    error:` before them, and a line of a SlurmError would get these words.
    """
    print(*lines, sep="\n", file=sys.stderr)
    return SlurmError()
