"""Classes of failed attempts, found in the last lines that real programs write."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from controller.core.lifecycle.failure_classes import RULES, FailureRule, classified, failure_class, rule_of
from wire.agent.reports import AttemptStatus

FAILED = AttemptStatus(1, 1, pid=9, started_at=0.0, ended_at=9.0, code=1)
TRACEBACK = 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n'
LICENCE = FailureRule("licence", "no licence", "Wait.", (re.compile("FlexNet.*-97"),), (3,))


@pytest.mark.parametrize(
    ("tail", "name"),
    [
        (
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "
            "capacity of "
            "79.15 GiB of which 1.2 GiB is free.",
            "gpu_out_of_memory",
        ),
        ("RuntimeError: CUDA error: out of memory\nCUDA_ERROR_OUT_OF_MEMORY", "gpu_out_of_memory"),
        (
            "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to "
            "allocate 8 "
            "bytes.",
            "gpu_out_of_memory",
        ),
        ("RuntimeError: DataLoader worker (pid 77) is killed by signal: Killed.", "out_of_memory"),
        ("MemoryError", "out_of_memory"),
        (
            "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 745. GiB for an array with "
            "shape (100000, "
            "1000000)",
            "out_of_memory",
        ),
        ("terminate called after throwing an instance of 'std::bad_alloc'", "out_of_memory"),
        (
            "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient "
            "shared memory "
            "(shm).",
            "shared_memory",
        ),
        ("OSError: [Errno 28] No space left on device: 'checkpoint.pt'", "disk_full"),
        ("cp: error writing 'x': Disk quota exceeded", "disk_full"),
        (
            "[rank1]: torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1691, "
            "remote process "
            "exited or there was a network error, NCCL version 2.19.3",
            "nccl",
        ),
        (
            "[E ProcessGroupNCCL.cpp:475] [Rank 0] Watchdog caught collective operation timeout: "
            "WorkNCCL(SeqNum=2, OpType=ALLREDUCE)",
            "nccl",
        ),
        ("RuntimeError: CUDA error: device-side assert triggered", "cuda"),
        ("RuntimeError: Found no NVIDIA driver on your system.", "cuda"),
        ("ModuleNotFoundError: No module named 'flash_attn'", "import_error"),
        (
            "ImportError: libcudart.so.12: cannot open shared object file: No such file or directory",
            "import_error",
        ),
        ("train.sh: line 2: pyhton: command not found", "import_error"),
        ("./a.out: /lib/libc.so.6: version `GLIBC_2.38' not found (required by ./a.out)", "import_error"),
        ("urllib.error.URLError: <urlopen error [Errno -3] Temporary failure in name resolution>", "network"),
        ("curl: (6) Could not resolve host: huggingface.co", "network"),
        ("ConnectionRefusedError: [Errno 111] Connection refused", "network"),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'data/train.bin'", "missing_file"),
        ("cat: data: No such file or directory", "missing_file"),
        ("ValueError: too many values to unpack (expected 2)", "user_code"),
        ("", "user_code"),
    ],
)
def test_class_of_a_log(tail: str, name: str) -> None:
    assert failure_class(replace(FAILED, tail=tail), ()) == name
    assert failure_class(replace(FAILED, tail=f"epoch 1\n{TRACEBACK}{tail}\n\n"), ()) == name


def test_last_exception_counts_more_than_earlier_lines() -> None:
    noise = "warning: Connection refused, trying again\nImportError: no apex, going on\n"
    assert failure_class(replace(FAILED, tail=f"{noise}{TRACEBACK}KeyError: 'loss'"), ()) == "user_code"
    assert failure_class(replace(FAILED, tail=noise + "gave up"), ()) == "import_error"
    full = "OSError: [Errno 28] No space left on device\nRuntimeError: the writer has ended"
    assert failure_class(replace(FAILED, tail=full), ()) == "disk_full", "the first cause"


@pytest.mark.parametrize(
    ("status", "name"),
    [
        (replace(FAILED, why="out_of_memory: it had 100 MiB", signal=9, code=None), "out_of_memory"),
        (replace(FAILED, why="scratch_exceeded: it filled more"), "disk_full"),
        (replace(FAILED, why="time_limit", tail="ModuleNotFoundError: x"), ""),
        (replace(FAILED, why="cancelled", tail="CUDA error"), ""),
        (replace(FAILED, code=None, signal=11), "crash"),
        (replace(FAILED, code=139), "crash"),
        (replace(FAILED, code=None, signal=15), "user_code"),
    ],
)
def test_class_of_an_exit(status: AttemptStatus, name: str) -> None:
    assert failure_class(status, ()) == name


def test_rules_of_the_site_come_first_and_need_all_their_conditions() -> None:
    tail = "CUDA error: FlexNet Licensing error:-97,121"
    assert failure_class(replace(FAILED, code=3, tail=tail), (LICENCE,)) == "licence"
    assert failure_class(replace(FAILED, code=1, tail=tail), (LICENCE,)) == "cuda"
    assert failure_class(replace(FAILED, code=3), (LICENCE,)) == "user_code"
    assert rule_of("licence", (LICENCE,)) is LICENCE
    assert rule_of("licence", ()) is None


def test_lines_of_the_log_do_not_reach_the_engine() -> None:
    found = classified(replace(FAILED, tail="password=secret\nMemoryError"), ())
    assert (found.failure, found.tail) == ("out_of_memory", "")
    well = AttemptStatus(1, 1, pid=9, ended_at=9.0, code=0)
    assert classified(well, ()) is well


def test_every_rule_has_a_remedy() -> None:
    assert all(rule.sentence and rule.remedy for rule in RULES)
