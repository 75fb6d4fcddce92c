"""Defines which earlier jobs are similar to a job, such as jobs with the same command. The run time of a job
is predicted from the run times of similar jobs.
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

SimilarityKey = tuple[str, ...]
"""The key of one group of similar jobs, in memory and in the store. Here `name` is the job name without a
number at its end, and `command` is a hash of the command without its numbers:

- (user, "", id of the array): the elements of one array;
- (user, name, size, command): jobs with the same name, size and command;
- (user, name, size): jobs with the same name and size;
- (user, name, ANY_SIZE): jobs with the same name and any size.
"""

_NUMBER_AT_END = re.compile(r"[\W_]*\d*$")
_NUMBER = re.compile(
    r"(?:(?<![A-Za-z\d.])|(?<=seed))[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?![A-Za-z\d])"
    r"|\b(?=[a-f]*\d)[0-9a-f]{8,}\b"
)
"""A pattern for the numbers to ignore in a command. The pattern matches a separate number (3, 1e-4, the 7 in
run_7), the number of a seed (seed42), and a hash of 8 or more hexadecimal digits. It does not match a number
in a word, as in resnet50, because this number often names another program.
"""


def similarity_keys(job: Job) -> tuple[SimilarityKey, ...]:
    """Return the keys of the groups of earlier jobs from which the run time of `job` may be predicted. The
    group with the most similar jobs is first.
    """
    user, stem, size = job.user, stem_of(job.name), size_of(job.spec)
    keys = (user, stem, size, command_key(job.spec.command)), (user, stem, size), (user, stem, ANY_SIZE)
    return keys if job.array is None else ((user, "", str(job.array)), *keys)


@lru_cache(4_096)
def stem_of(name: str) -> str:
    """Return the first LONGEST_STEM characters of the job name without a number at its end. Jobs such as
    `train-07` and `train-08` usually run the same program.
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
