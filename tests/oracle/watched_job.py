"""The program of every watched job: it records when it runs and how it ends, in a directory without faults.

    S <time> <pid> <node> <CPU milli> <memory MiB> <GPUs>
    B <time>                ten times a second
    E <time> <outcome>      the exit code, or minus the signal it ends itself with

Arguments: the directory for records; how many beats to live, or a file to wait for; the outcome.
Runs under `python -IS`: no import that costs anything.
"""

import os
import sys
import time

BEAT_S = 0.1


def main(folder: str, until: str, outcome: int) -> int:
    """Write records until the end; returns the outcome."""
    told = os.environ
    with open("/proc/sys/kernel/random/boot_id") as file:
        boot = file.read().strip()
    rank = told["CORRAL_NODE_RANK"]
    record = _open(f"{folder}/{told['CORRAL_JOB_ID']}.{told['CORRAL_ATTEMPT']}.{rank}.{boot}")

    def say(word: str, *more: object) -> None:
        os.write(record, " ".join([word, f"{time.monotonic():.6f}", *map(str, more)]).encode() + b"\n")
        os.fsync(record)

    holds = (told[name] or "-" for name in ("CORRAL_CPU_MILLI", "CORRAL_MEMORY_MIB", "CUDA_VISIBLE_DEVICES"))
    say("S", os.getpid(), told["CORRAL_NODE"], *holds)
    beats = 0
    while not (os.path.exists(until) if until.startswith("/") else beats >= int(until)):
        time.sleep(BEAT_S)
        say("B")
        beats += 1
    say("E", outcome)
    if outcome < 0:
        os.kill(os.getpid(), -outcome)
    return outcome


def _open(path: str) -> int:
    """The record of this attempt. If it exists already, the second run writes another record beside it."""
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
    except FileExistsError:
        return os.open(
            f"{path}.again-{os.getpid()}", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
