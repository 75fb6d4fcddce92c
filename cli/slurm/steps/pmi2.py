"""The commands of PMI version 2, by which the processes of an MPI program started by srun find each other."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

LENGTH_BYTES = 6
"""A message begins with its length in this many bytes: a decimal number and spaces."""
_FIELD = re.compile(r"([^=;]*)=((?:[^;]|;;)*);")
"""A field of a message. A semicolon in a value is doubled. Corral stores and returns values with doubled
semicolons.
"""
Answers = Iterator[tuple[int, bytes]]
"""Messages to processes, each as (rank of the process, bytes)."""


class Pmi2Commands:
    """Answers the commands of one step. A message is a length and fields, such as `cmd=kvs-get;key=a;`.

    1. fullinit, job-getid, info-getjobattr: return facts of the step, such as the number of processes.
    2. kvs-put: store a value under a key. kvs-get: return the value of a key that any process has stored.
    3. kvs-fence: when all processes have sent kvs-fence, answer all processes.
    4. info-putnodeattr, info-getnodeattr: store and return values that the processes of one node share. With
       wait=TRUE, send the answer when a process has stored the key.
    5. finalize: the process ends. (PmiServer handles abort.)
    Other commands, such as spawn, are answered with an error.

    `keys` is the key-value space of the step. `node_of` lists, by rank, the index of the node of each
    process.
    """

    def __init__(self, name: str, node_of: Sequence[int], keys: dict[str, str], mapping: str) -> None:
        self._name = name
        self._node_of = node_of
        self._keys = keys
        self._job = {"PMI_process_mapping": mapping, "universeSize": str(len(node_of))}
        self._node: dict[tuple[int, str], str] = {}
        self._fence: dict[int, Mapping[str, str]] = {}
        self._wanted: dict[tuple[int, str], list[tuple[int, Mapping[str, str]]]] = {}

    def take(self, rank: int, given: Mapping[str, str]) -> Answers:
        """Handle a message of the process with this rank, and yield the messages to send now."""
        key, node = given.get("key", ""), self._node_of[rank]
        match given.get("cmd", ""):
            case "fullinit":
                version = {"pmi-version": "2", "pmi-subversion": "0"}
                size = {"rank": str(rank), "size": str(len(self._node_of)), "appnum": "0"}
                yield _answer(rank, given, **version, **size, debugged="FALSE", pmiverbose="FALSE")
            case "job-getid":
                yield _answer(rank, given, jobid=self._name)
            case "info-getjobattr":
                yield _found(rank, given, self._job.get(key))
            case "kvs-put":
                self._keys[key] = given.get("value", "")
                yield _answer(rank, given)
            case "kvs-get":
                yield _found(rank, given, self._keys.get(key))
            case "kvs-fence":
                self._fence[rank] = given
                if len(self._fence) == len(self._node_of):
                    fence, self._fence = self._fence, {}
                    yield from (_answer(each, asked) for each, asked in fence.items())
            case "info-putnodeattr":
                value = self._node[node, key] = given.get("value", "")
                yield _answer(rank, given)
                for each, asked in self._wanted.pop((node, key), ()):
                    yield _found(each, asked, value)
            case "info-getnodeattr":
                known = self._node.get((node, key))
                if known is None and given.get("wait") == "TRUE":
                    self._wanted.setdefault((node, key), []).append((rank, given))
                else:
                    yield _found(rank, given, known)
            case "finalize":
                yield _answer(rank, given)
            case _:
                yield _answer(rank, given, "1", errmsg="not_supported")


def fields(body: str) -> dict[str, str]:
    """Return a dict from the name of each field of a message to its value."""
    return dict(_FIELD.findall(body))


def _found(rank: int, asked: Mapping[str, str], value: str | None) -> tuple[int, bytes]:
    if value is None:
        return _answer(rank, asked, found="FALSE")
    return _answer(rank, asked, found="TRUE", value=value)


def _answer(to: int, asked: Mapping[str, str], rc: str = "0", /, **more: str) -> tuple[int, bytes]:
    """Return the answer to a message. The field `thrid` names the thread that waits for the answer."""
    thread = {"thrid": asked["thrid"]} if "thrid" in asked else {}
    said = {"cmd": f"{asked.get('cmd', '')}-response", **thread, "rc": rc}
    said.update((name.replace("_", "-"), value) for name, value in more.items())
    body = "".join(f"{name}={value};" for name, value in said.items()).encode()
    return to, f"{len(body):<{LENGTH_BYTES}}".encode() + body
