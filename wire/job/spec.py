"""JobSpec: the request of a job. Clients and the API validate a JobSpec, and the engine uses it unchanged."""

from __future__ import annotations

import re
from dataclasses import field
from operator import attrgetter
from typing import Callable, Iterator, Mapping, Optional

from wire.cluster.reservation import MAX_NAME
from wire.dataclass import dataclass
from wire.job.arrays import array_indices
from wire.job.gangs import NO_GANG, Gang, gang_problems
from wire.job.health import HealthCheck, health_problems
from wire.job.images import image_problems, image_texts
from wire.job.licences import licence_problems
from wire.job.mail import mail_problems
from wire.job.output_files import output_problems
from wire.job.placement.affinity import Preference, Term, Toleration, affinity_problems, affinity_texts
from wire.job.placement.gpu_requirements import GpuWish, Topology, gpu_requirement_problems
from wire.job.placement.job_affinity import JobTerm, job_affinity_problems
from wire.job.start_conditions import DEFAULT_RESTART, Dependency, OnNodeLost, Restart, condition_problems
from wire.names import HIGHEST_PRIORITY, PRIORITIES, WHOLE_GPU


@dataclass(frozen=True)
class JobSpec:
    """The request of one job, or of one array of jobs that differ only in their index.

    - `cpu_milli`, `memory_mib` and `scratch_mib` are amounts per node. For `cpu_milli` and `memory_mib`, 0
      means the default: the controller sets the amount and records the source of the default in `by_default`.
    - `gpus` is the total over all nodes: a whole number, or a part of one GPU such as 0.25. Without `nodes`
      the job gets the fewest nodes that have enough GPUs.
    - Fields named `…_at` are seconds since 1970. A job that was allowed to start and has then waited in the
      queue for `start_within_s` seconds is ended. At least `after_count` of the dependencies in `after` must
      be met; None means that all must be met.
    - `output` and `error` are files relative to `workdir`, with the patterns of output_files.py. `open_mode`
      is append, truncate or empty; empty truncates in the first attempt and appends in later attempts. With
      `merge_output`, stdout and stderr go to one log, in the written order.
    - With `time_min_s` the scheduler may give an attempt a shorter limit than `time_limit_s`, but at least
      `time_min_s` seconds, if the job can then start earlier.
    - With `checkpoint_every_s` a running job is requested to save a checkpoint at this interval. Old
      checkpoints are deleted until the others have at most `checkpoint_mib` MiB together; the newest
      checkpoint is always kept. 0 means no interval and no limit.
    - A `batch` command runs once, on the first node. It may start programs on the other nodes of the job.
    - With `reservation` the job runs only on nodes of the operator's reservation with this name, and starts
      only while this reservation is active.
    - `profile` is the name of a scheduler profile that accepts the job. None means the first profile that
      accepts the job.
    - Mail about the events `mail_types` goes to `mail_user`; empty means the user of the job.
    - `comment` has no effect. Users do not set `lease_s`: the controller records the job's lease in this
      field.
    """

    command: tuple[str, ...]
    name: str = ""
    project: str = "default"
    queue: str = "default"
    reservation: str = ""
    profile: Optional[str] = None
    priority: int = PRIORITIES["NORMAL"]
    cpu_milli: int = 0
    memory_mib: int = 0
    scratch_mib: int = 0
    cpu_limit_milli: Optional[int] = None
    memory_limit_mib: Optional[int] = None
    best_effort: bool = False
    gpus: float = 0
    gpu_models: tuple[str, ...] = ()
    gpu: Optional[GpuWish] = None
    topology: Optional[Topology] = None
    datasets: tuple[str, ...] = ()
    licences: Mapping[str, int] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    company: tuple[JobTerm, ...] = ()
    nodes: Optional[int] = None
    selector: Mapping[str, str] = field(default_factory=dict)
    affinity: tuple[Term, ...] = ()
    preferences: tuple[Preference, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    workdir: Optional[str] = None
    time_limit_s: Optional[float] = None
    time_min_s: Optional[float] = None
    begin_at: Optional[float] = None
    deadline_at: Optional[float] = None
    start_within_s: Optional[float] = None
    restart: Restart = DEFAULT_RESTART
    on_node_lost: Optional[OnNodeLost] = None
    lease_s: Optional[float] = None
    after: tuple[Dependency, ...] = ()
    after_count: Optional[int] = None
    after_within_s: Optional[float] = None
    relax: tuple[str, ...] = ()
    relax_after_s: float = 1_800.0
    grace_s: float = 10.0
    array: Optional[str] = None
    hold: bool = False
    gang: Gang = NO_GANG
    preemptible: bool = True
    min_runtime_s: float = 0.0
    checkpoint_command: tuple[str, ...] = ()
    checkpoint_signal: str = ""
    checkpoint_dir: Optional[str] = None
    checkpoint_s: float = 60.0
    checkpoint_keep: int = 0
    checkpoint_every_s: float = 0.0
    checkpoint_mib: int = 0
    warn_signal: str = ""
    warn_s: float = 60.0
    tasks_per_node: int = 1
    image: str = ""
    mounts: tuple[str, ...] = ()
    by_default: Mapping[str, str] = field(default_factory=dict)
    umask: Optional[int] = None
    output: str = ""
    error: str = ""
    open_mode: str = ""
    merge_output: bool = False
    batch: bool = False
    comment: str = ""
    mail_user: str = ""
    mail_types: tuple[str, ...] = ()
    health: Optional[HealthCheck] = None

    @property
    def saves(self) -> bool:
        """Return whether the job can save its state before its stop: it has a checkpoint signal or a
        checkpoint command.
        """
        return bool(self.checkpoint_command or self.checkpoint_signal)


SIGNALS = ("HUP", "INT", "QUIT", "USR1", "USR2", "TERM", "CONT", "WINCH", "URG", "ALRM")
"""Signals that users can send to a job. Users may write USR1 or SIGUSR1."""


def with_values(spec: JobSpec, values: Mapping[str, object]) -> JobSpec:
    """Return a copy of the spec in which the fields named in `values` have these values.

    `dataclasses.replace` does the same, but takes 30 microseconds for a class with this many fields, and a
    submit makes several copies.
    """
    copied = object.__new__(JobSpec)
    copied.__dict__.update(spec.__dict__)
    copied.__dict__.update(values)
    return copied


def qos_class(spec: JobSpec) -> str:
    """Return the QoS class of a job, as in Kubernetes. A guaranteed job gets exactly the requested CPU and
    memory. A burstable job may also use more CPU and memory while other jobs leave CPU and memory free. A
    best-effort job gets only CPU and memory that no other job uses.
    """
    if spec.best_effort:
        return "best-effort"
    limits = ((spec.cpu_limit_milli, spec.cpu_milli), (spec.memory_limit_mib, spec.memory_mib))
    beyond = any(limit is not None and limit > request for limit, request in limits)
    return "burstable" if beyond else "guaranteed"


Problems = Iterator[tuple[str, str]]
"""Mistakes in a JobSpec, each as (field name, sentence for users)."""

_SeldomCheck = tuple[frozenset[str], Callable[[JobSpec], object], object, Callable[[JobSpec], Problems]]
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
_PROGRAM = "must name a program to run"
MAX_COMMENT = 1_000
MAX_COMMAND = 128 * 1024


def spec_problems(spec: JobSpec) -> list[tuple[str, str]]:
    """Validate a JobSpec without the state of the cluster. Return each mistake as (field name, sentence for
    users).
    """
    found = list(_usual_problems(spec))
    # Run all checks only if the job sets a rarely used field. A submit must be fast, and most jobs set no
    # such field.
    checks = _OFTEN_CHECKS if _RARE_FIELDS(spec) == _RARE_DEFAULTS else _SELDOM_CHECKS
    for _, values, default, check in checks:
        if values(spec) != default:
            found += check(spec)
    return found


def _usual_problems(spec: JobSpec) -> Problems:
    """Validate the fields of a JobSpec that most jobs set. Yield each mistake."""
    if not spec.command or not spec.command[0]:
        yield "command", _PROGRAM
    if sum(map(len, spec.command)) > MAX_COMMAND:
        yield "command", f"must be at most {MAX_COMMAND} characters long"
    for where, text in (("name", spec.name), ("project", spec.project), ("queue", spec.queue)):
        if len(text) > 200:
            yield where, "must be at most 200 characters"
    if not is_storable("".join((spec.name, spec.project, spec.queue, *spec.command))):
        yield from _unstorable(_usual_texts(spec))
    if not spec.project:
        yield "project", "must not be empty"
    if not spec.queue:
        yield "queue", "must not be empty"
    if not 0 <= spec.priority <= HIGHEST_PRIORITY:
        yield "priority", f"must lie between 0 and {HIGHEST_PRIORITY}"
    if not 0 <= spec.cpu_milli <= 10_000_000:
        yield "cpu_milli", "must be positive (1000 is one core) and at most 10,000 cores"
    if not 0 <= spec.memory_mib <= 1 << 30:
        yield "memory_mib", "must be positive and at most 1024T"
    if not _whole_or_share(spec.gpus):
        yield "gpus", "must be a whole number, or a share of one GPU such as 0.25"
    elif spec.nodes and spec.gpus % spec.nodes and spec.nodes > 1:
        sentence = f"{gpus_text(spec.gpus)} GPUs cannot be divided evenly over {spec.nodes} nodes"
        yield "gpus", sentence
    if spec.nodes is not None and not 1 <= spec.nodes <= 10_000:
        yield "nodes", "must be between 1 and 10000"
    if spec.time_limit_s is not None and not 0 < spec.time_limit_s <= 10 * 365 * 86_400:
        yield "time_limit_s", "must be positive and at most ten years"


def _limit_problems(spec: JobSpec) -> Problems:
    if len(spec.profile or "") > 200:
        yield "profile", "must be at most 200 characters"
    if spec.profile == "":
        yield "profile", "must not be empty"
    if len(spec.reservation) > MAX_NAME:
        yield "reservation", f"must be at most {MAX_NAME} characters"
    if spec.time_min_s is not None:
        if not 0 < spec.time_min_s <= 10 * 365 * 86_400:
            yield "time_min_s", "must be positive and at most ten years"
        elif spec.time_limit_s is not None and spec.time_min_s > spec.time_limit_s:
            yield "time_min_s", "must not be longer than the time limit"
    if not 0 <= spec.scratch_mib <= 1 << 40:
        yield "scratch_mib", "must not be negative"
    for where, request, limit in (
        ("cpu_limit_milli", spec.cpu_milli, spec.cpu_limit_milli),
        ("memory_limit_mib", spec.memory_mib, spec.memory_limit_mib),
    ):
        if limit is not None and not request <= limit <= 1 << 30:
            yield where, "must not be less than the request"
        if limit is not None and spec.best_effort:
            yield where, "cannot be set for a best-effort job: it has no limit"
    if not 0 <= spec.min_runtime_s <= 10 * 365 * 86_400:
        yield "min_runtime_s", "must not be negative, and at most ten years"
    if not 0 <= spec.grace_s <= 3_600:
        yield "grace_s", "must lie between 0 and 3600 seconds"


def _process_problems(spec: JobSpec) -> Problems:
    if len(spec.comment) > MAX_COMMENT:
        yield "comment", f"must be at most {MAX_COMMENT} characters"
    if not 1 <= spec.tasks_per_node <= 1_000:
        yield "tasks_per_node", "must be between 1 and 1000"
    if spec.workdir is not None and not spec.workdir.startswith("/"):
        yield "workdir", "must be an absolute path"


def _env_problems(spec: JobSpec) -> Problems:
    for key in spec.env:
        if not key or "=" in key:
            yield f"env.{key}", "is not a valid environment variable"


def _array_problems(spec: JobSpec) -> Problems:
    try:
        array_indices(spec.array or "")
    except ValueError as error:
        yield "array", str(error)


def signal_name(text: str) -> str:
    """Return the name USR1 for SIGUSR1, usr1 or USR1; empty if users cannot send this signal to jobs."""
    name = text.upper()
    name = name[3:] if name.startswith("SIG") else name
    return name if name in SIGNALS else ""


def _checkpoint_problems(spec: JobSpec) -> Problems:
    for where, text in (("checkpoint_signal", spec.checkpoint_signal), ("warn_signal", spec.warn_signal)):
        if text and not signal_name(text):
            yield where, f"must be one of {', '.join(SIGNALS)}"
    if spec.checkpoint_command and not spec.checkpoint_command[0]:
        yield "checkpoint_command", _PROGRAM
    for where, seconds in (("checkpoint_s", spec.checkpoint_s), ("warn_s", spec.warn_s)):
        if not 0 < seconds <= 86_400:
            yield where, "must be positive and at most a day"
    if spec.checkpoint_every_s and not 1 <= spec.checkpoint_every_s <= 365 * 86_400:
        yield "checkpoint_every_s", "must lie between a second and a year"
    elif spec.checkpoint_every_s and not spec.saves:
        yield "checkpoint_every_s", "needs a checkpoint command or a checkpoint signal"
    if not 0 <= spec.checkpoint_mib <= 1 << 40:
        yield "checkpoint_mib", "must not be negative"
    if not 0 <= spec.checkpoint_keep <= 1_000:
        yield "checkpoint_keep", "must lie between 0 and 1000; 0 keeps all"
    if spec.checkpoint_dir is not None and not spec.checkpoint_dir.startswith("/"):
        yield "checkpoint_dir", "must be an absolute path"


def is_storable(text: str) -> bool:
    """Return whether databases can store the text. NUL and half a surrogate pair are valid in JSON but
    cannot be stored.
    """
    return not _UNSTORABLE.search(text)


def _unstorable(texts: Iterator[tuple[str, str]]) -> Problems:
    return ((where, "must be Unicode text without NUL") for where, text in texts if not is_storable(text))


def _usual_texts(spec: JobSpec) -> Iterator[tuple[str, str]]:
    """Yield every text in the fields that most jobs set, as (field name, text)."""
    yield from (("name", spec.name), ("project", spec.project), ("queue", spec.queue))
    yield from (("command", part) for part in spec.command)


def _single_texts(spec: JobSpec) -> Iterator[tuple[str, str]]:
    """Yield (field name, text) for each rarely used field of JobSpec whose value is a single text."""
    for name in _SINGLE_TEXTS.split():
        yield name, getattr(spec, name) or ""


def _listed_texts(spec: JobSpec) -> Iterator[tuple[str, str]]:
    """Yield every text in the rarely used fields that have several texts, as (field name, text)."""
    if spec.health is not None:
        yield from (("health", part) for part in (*spec.health.command, spec.health.file))
    yield from (("checkpoint_command", part) for part in spec.checkpoint_command)
    yield from ((f"after[{index}]", each.path) for index, each in enumerate(spec.after))
    yield from (("datasets", name) for name in spec.datasets)
    yield from image_texts(spec)
    yield from (("gpu_models", model) for model in spec.gpu_models)
    yield from affinity_texts(spec.affinity, spec.preferences, spec.tolerations)


def _mapped_texts(spec: JobSpec) -> Iterator[tuple[str, str]]:
    """Yield every key and value in labels, selector and environment, as (field name, text)."""
    for where, pairs in (("labels", spec.labels), ("selector", spec.selector), ("env", spec.env)):
        for key, value in pairs.items():
            yield f"{where}.{key}", key
            yield f"{where}.{key}", value


def _whole_or_share(gpus: float) -> bool:
    if not 0 <= gpus <= 100_000:
        return False
    milli = gpus * WHOLE_GPU
    return gpus == int(gpus) if gpus >= 1 else abs(milli - round(milli)) < 1e-6


def gpus_text(gpus: float) -> str:
    """Return a number of GPUs as text, such as 8 or 0.25."""
    return f"{gpus:g}"


def _if_set(names: str, check: Callable[[JobSpec], Problems]) -> _SeldomCheck:
    """Return an entry of _SELDOM_CHECKS: the fields in `names`, a function that reads these fields of a
    JobSpec, their default values, and the check.
    """
    fields = names.split()
    values = attrgetter(*fields)
    return frozenset(fields), values, values(_DEFAULTS), check


_DEFAULTS = JobSpec(command=())
_SINGLE_TEXTS = "profile reservation workdir array comment output error checkpoint_dir"
_LISTED_TEXTS = (
    "health checkpoint_command after datasets image mounts gpu_models affinity preferences tolerations"
)
_SELDOM_CHECKS = (
    _if_set(_SINGLE_TEXTS, lambda spec: _unstorable(_single_texts(spec))),
    _if_set(_LISTED_TEXTS, lambda spec: _unstorable(_listed_texts(spec))),
    _if_set("labels selector env", lambda spec: _unstorable(_mapped_texts(spec))),
    _if_set(
        "profile reservation time_min_s scratch_mib cpu_limit_milli memory_limit_mib min_runtime_s grace_s",
        _limit_problems,
    ),
    _if_set(
        "checkpoint_command checkpoint_signal checkpoint_dir checkpoint_s checkpoint_keep checkpoint_every_s "
        "checkpoint_mib warn_signal warn_s",
        _checkpoint_problems,
    ),
    _if_set("comment tasks_per_node workdir", _process_problems),
    _if_set("image mounts", image_problems),
    _if_set("mail_user mail_types", mail_problems),
    _if_set("output error open_mode umask", output_problems),
    _if_set("datasets gpu topology", gpu_requirement_problems),
    _if_set("licences", lambda spec: licence_problems(spec.licences)),
    _if_set("labels company", job_affinity_problems),
    _if_set(
        "affinity preferences tolerations",
        lambda spec: affinity_problems(spec.affinity, spec.preferences, spec.tolerations),
    ),
    _if_set("env", _env_problems),
    _if_set("array", _array_problems),
    _if_set(
        "begin_at deadline_at start_within_s restart after after_count after_within_s relax relax_after_s",
        condition_problems,
    ),
    _if_set("health", health_problems),
    _if_set("gang", gang_problems),
)
"""The checks of rarely used fields, in the order in which mistakes are reported. A check finds no mistake if
all its fields have their default values.
"""
_OFTEN_SET = frozenset(("workdir", "env", "output", "error", "umask"))
"""The fields that `corral submit` sets for most jobs."""
_OFTEN_CHECKS = tuple(each for each in _SELDOM_CHECKS if each[0] & _OFTEN_SET)
"""The checks for a job that sets only the fields in _OFTEN_SET."""
_RARE_FIELDS = attrgetter(
    *sorted(frozenset().union(*(each[0] for each in _SELDOM_CHECKS if each not in _OFTEN_CHECKS)))
)
_RARE_DEFAULTS = _RARE_FIELDS(_DEFAULTS)
