"""A server of PMI (versions 1 and 2), by which the processes of an MPI program that srun started find each
other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from cli.slurm.steps.pmi2 import LENGTH_BYTES, Pmi2Commands, fields

_MOST_LINE = 65_536


class PmiServer:
    """The key-value space of one step.

    Each process writes lines such as `cmd=put kvsname=7.0 key=a value=b` to the descriptor PMI_FD and reads a
    line as the answer. MPICH, Intel MPI and MVAPICH use these commands to start:
    1. init, get_maxes, get_appnum, get_my_kvsname, get_universe_size: return facts of the step, such as the
       number of processes.
    2. put: store a value under a key, such as the address of the process. get: return the value of a key.
    3. barrier_in: when all processes have sent barrier_in, send barrier_out to all processes.
    4. finalize, abort: the process ends. Other commands, such as spawn, are answered with an error.

    After an init with version 2, a process sends the messages of pmi2.py instead of lines.

    `node_counts` is the number of tasks on each node. From these numbers, MPI programs compute which of their
    processes share memory.

    Example: two processes, node_counts [2]: PMI_process_mapping is (vector,(0,1,2)).
    """

    def __init__(
        self,
        name: str,
        node_counts: Sequence[int],
        write: Callable[[int, bytes], None],
        abort: Callable[[int, int], None],
    ) -> None:
        self._name = name
        self._size = sum(node_counts)
        self._write = write
        self._abort = abort
        self._rest: dict[int, bytes] = {}
        self._waiting: set[int] = set()
        self._lock = threading.Lock()
        mapping = _mapping(node_counts)
        self._keys = {"PMI_process_mapping": mapping}
        node_of = [place for place, count in enumerate(node_counts) for _ in range(count)]
        self._version_2: set[int] = set()
        self._commands_2 = Pmi2Commands(name, node_of, self._keys, mapping)

    def take(self, rank: int, data: bytes) -> None:
        """Handle bytes that the process with this rank has written."""
        with self._lock:
            rest = self._rest.pop(rank, b"") + data
            while True:
                message, rest = self._first_message(rank, rest)
                if message is None:
                    break
                if rank in self._version_2:
                    self._take_message(rank, message)
                else:
                    self._take_line(rank, message)
            if len(rest) <= _MOST_LINE:
                self._rest[rank] = rest

    def _first_message(self, rank: int, data: bytes) -> tuple[str | None, bytes]:
        """Return the first message in the bytes, and the bytes after it. Return None and all bytes if the
        first message is not complete.
        """
        if rank not in self._version_2:
            line, end, rest = data.partition(b"\n")
            return (line.decode("utf-8", "replace"), rest) if end else (None, data)
        head = data[:LENGTH_BYTES].strip()
        length = int(head) if head.isdigit() else _MOST_LINE
        end_at = LENGTH_BYTES + length
        if len(data) < end_at:
            return None, data
        return data[LENGTH_BYTES:end_at].decode("utf-8", "replace"), data[end_at:]

    def _take_message(self, rank: int, message: str) -> None:
        given = fields(message)
        if given.get("cmd") == "abort":
            self._abort(rank, 1)
            return
        for each, answer in self._commands_2.take(rank, given):
            self._write(each, answer)

    def _take_line(self, rank: int, line: str) -> None:
        given = _fields(line)
        command = given.get("cmd", "")
        if command == "barrier_in":
            self._waiting.add(rank)
            if len(self._waiting) == self._size:
                self._waiting.clear()
                for each in range(self._size):
                    self._write(each, b"cmd=barrier_out\n")
        elif command == "abort":
            code = given.get("exitcode", "1")
            self._abort(rank, int(code) if code.lstrip("-").isdigit() else 1)
        elif command == "init" and given.get("pmi_version") == "2":
            self._version_2.add(rank)
            self._write(rank, b"cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0\n")
        else:
            answer = self._answer(command, given)
            self._write(rank, (answer + "\n").encode())

    def _answer(self, command: str, given: dict[str, str]) -> str:
        match command:
            case "init":
                if given.get("pmi_version") != "1":
                    return "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=-1"
                return "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0"
            case "get_maxes":
                return "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024"
            case "get_appnum":
                return "cmd=appnum appnum=0"
            case "get_my_kvsname":
                return f"cmd=my_kvsname kvsname={self._name}"
            case "get_universe_size":
                return f"cmd=universe_size size={self._size}"
            case "put":
                self._keys[given.get("key", "")] = given.get("value", "")
                return "cmd=put_result rc=0 msg=success"
            case "get":
                value = self._keys.get(given.get("key", ""))
                if value is None:
                    return f"cmd=get_result rc=-1 msg=key_{given.get('key', '')}_not_found value=unknown"
                return f"cmd=get_result rc=0 msg=success value={value}"
            case "finalize":
                return "cmd=finalize_ack"
            case _:
                return f"cmd={command}_result rc=-1 msg=not_supported"


def _fields(line: str) -> dict[str, str]:
    """Return a dict from the name of each field of a line to its value. The field `value` is the last one and
    may contain spaces.
    """
    head, found, value = line.partition(" value=")
    pairs = (word.partition("=") for word in head.split())
    fields = {name: text for name, _, text in pairs}
    return {**fields, "value": value} if found else fields


def _mapping(node_counts: Sequence[int]) -> str:
    """Return the value of PMI_process_mapping. It has one group (first node, number of nodes, tasks on each
    node) for each run of neighbouring nodes with the same number of tasks.
    """
    groups: list[list[int]] = []
    for place, count in enumerate(node_counts):
        if groups and groups[-1][2] == count:
            groups[-1][1] += 1
        else:
            groups.append([place, 1, count])
    return "(vector," + ",".join(f"({first},{nodes},{tasks})" for first, nodes, tasks in groups) + ")"
