"""Defines the kinds of a job. A kind is a set of earlier jobs that are similar to the job, such as jobs with
the same command. The run time of the job is predicted from the run times of these jobs.
"""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import blake2b

from controller.core.model.job import Job
from wire.job.spec import JobSpec, gpus_text
from wire.names import WHOLE_GPU

LONGEST_STEM = 80
ANY_SIZE = ""

RunKind = tuple[str, ...]
"""One group of similar earlier runs (a kind). The tuple is the key of the group in the store. Its first item
is always the user:

- (user, "", id of the array): the elements of one array;
- (user, name, size, command): jobs with the same command, apart from numbers in it;
- (user, name, size): jobs of one size whose names differ only in the number at the end;
- (user, name, ANY_SIZE): the same with any size.
"""

_NUMBER_AT_END = re.compile(r"[\W_]*\d*$")
_NUMBER = re.compile(
    r"(?:(?<![A-Za-z\d.])|(?<=seed))[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?![A-Za-z\d])"
    r"|\b(?=[a-f]*\d)[0-9a-f]{8,}\b"
)
"""A pattern for the numbers to ignore in a command. It matches a separate number, such as 3, 1e-4 or the 7 in
run_7, the number of a seed (seed42), and a hash of 8 or more hexadecimal digits. It does not match a number
in a word, as in resnet50, because this number often names another program.
"""


def kinds_of(job: Job) -> tuple[RunKind, ...]:
    """Return the kinds of the job: groups of similar earlier jobs from which its run time may be predicted.
    The groups are sorted from the most similar to the least similar.
    """
    user, stem, size = job.user, stem_of(job.name), size_of(job.spec)
    kinds = (user, stem, size, command_key(job.spec.command)), (user, stem, size), (user, stem, ANY_SIZE)
    return kinds if job.array is None else ((user, "", str(job.array)), *kinds)


@lru_cache(4_096)
def stem_of(name: str) -> str:
    """Return the name without a number at its end. Jobs such as `train-07` and `train-08` usually run the
    same program.
    """
    return _NUMBER_AT_END.sub("", name)[:LONGEST_STEM] or name[:LONGEST_STEM]


def size_of(spec: JobSpec) -> str:
    """Return the size of a job as a text: the number of its GPUs, such as `8g`. For a job without GPUs,
    return the number of its CPUs, such as `4c`.
    """
    if spec.gpus:
        return f"{gpus_text(spec.gpus)}g"
    return f"{spec.cpu_milli * (spec.nodes or 1) / WHOLE_GPU:g}c"


@lru_cache(1_024)
def command_key(command: tuple[str, ...]) -> str:
    """Return a hash of the command. Commands that differ only in numbers, such as seeds, have the same hash.

    All arguments count, including the text of a script. A hash is stored because a command may contain a
    whole script.
    """
    text = _NUMBER.sub("#", "\n".join(command))
    return blake2b(text.encode(errors="surrogatepass"), digest_size=8).hexdigest()
