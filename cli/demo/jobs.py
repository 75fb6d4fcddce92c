"""The jobs of the demo: about forty jobs of different kinds, of five users."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle

from wire.job.spec import JobSpec
from wire.names import PRIORITIES, JobState

_HEAD = 'echo "$CORRAL_JOB_NAME on $CORRAL_NODE, GPUs ${CUDA_VISIBLE_DEVICES:-none}"\n'
_STEP = "i=0; while [ $i -lt $STEPS ]; do i=$((i + 1)); {work}; sleep 0.5; done\n"
_TRAIN = _HEAD + _STEP.format(
    work='l=$((2718 * 4 / (i + 4))); printf "step %3d/%d  loss %d.%03d  %d samples/s\\n" '
    "$i $STEPS $((l / 1000)) $((l % 1000)) $((1400 + i * 37 % 90))"
)
TRAIN_GANG = (
    'echo "rank ${NODE_RANK:-0} of ${NNODES:-1}, meeting at ${MASTER_ADDR:-?}:${MASTER_PORT:-?}"\n' + _TRAIN
)
_EVALUATE = _HEAD + _STEP.format(
    work='printf "batch %3d/%d  accuracy %d.%d%%\\n" $i $STEPS $((60 + i * 7 % 23)) $((i * 3 % 10))'
)
_CHEW = _HEAD + _STEP.format(work='echo "shard $i of $STEPS: $((i * 48611 % 9973)) documents"')
_DIVERGE = _TRAIN + 'echo "step $((STEPS + 1)): loss is nan, giving up" >&2; exit 1\n'


@dataclass(frozen=True)
class Part:
    """One submit of the demo: a job or an array. `ends` is the expected end state of the jobs; None if the
    controller should refuse the submit.
    """

    user: str
    name: str
    script: str
    seconds: float
    gpus: float = 0
    nodes: int | None = None
    cpus: int = 4
    memory_gib: int = 16
    priority: str = "NORMAL"
    array: str | None = None
    ends: JobState | None = JobState.COMPLETED

    def spec(self, workdir: str, stretch: float = 1.0) -> JobSpec:
        """Return the JobSpec to submit. The job runs in the directory `workdir`, and its run time is
        multiplied by `stretch`.
        """
        return JobSpec(
            command=("/bin/sh", "-c", self.script, self.name),
            name=self.name,
            project=_PROJECTS[self.user],
            priority=PRIORITIES[self.priority],
            cpu_milli=self.cpus * 1000,
            memory_mib=self.memory_gib * 1024,
            gpus=self.gpus,
            nodes=self.nodes,
            env={"STEPS": str(max(1, round(self.seconds * stretch * 2)))},
            workdir=workdir,
            time_limit_s=30 + round(3 * self.seconds * stretch),
            grace_s=1,
            array=self.array,
        )


_PROJECTS = {"ada": "vision", "bo": "language", "chen": "speech", "dina": "biology", "emil": "robotics"}

PARTS = (
    Part("ada", "resnet-baseline", _TRAIN, 6, gpus=1),
    Part("bo", "tokenise", _CHEW, 4, cpus=8, memory_gib=32),
    Part("bo", "forgotten-notebook", _TRAIN, 300, gpus=4, ends=JobState.CANCELLED),
    Part("chen", "notebook", _EVALUATE, 8, gpus=0.5, cpus=2),
    Part("emil", "notebook", _EVALUATE, 6, gpus=0.5, cpus=2),
    Part("ada", "vit-large", _TRAIN, 8, gpus=8, cpus=16, memory_gib=128),
    Part("bo", "llama-finetune", TRAIN_GANG, 9, gpus=16, nodes=2, cpus=16, memory_gib=256, priority="HIGH"),
    Part("chen", "asr-sweep", _TRAIN, 4, gpus=1, array="0-7"),
    Part("dina", "fold-proteins", _TRAIN, 7, gpus=8, cpus=16, memory_gib=128),
    Part("dina", "docking", _CHEW, 3, cpus=2, memory_gib=8, array="1-5"),
    Part("dina", "unstable-run", _DIVERGE, 2, gpus=1, ends=JobState.FAILED),
    Part("ada", "augment-search", _TRAIN, 3, gpus=1, array="0-10:2"),
    Part("dina", "whole-genome", _TRAIN, 60, gpus=64, nodes=8, ends=None),
    Part("emil", "policy-sweep", _TRAIN, 4, gpus=2, array="0-3"),
    Part("bo", "leaderboard", _EVALUATE, 3, gpus=0.25, cpus=1, array="0-3"),
    Part("chen", "whisper-small", _TRAIN, 5, gpus=2),
    Part("emil", "nightly-report", _CHEW, 2, cpus=1, memory_gib=4, priority="BATCH"),
    Part("ada", "hotfix-check", _EVALUATE, 2, gpus=1, priority="CRITICAL"),
)


def extra_jobs() -> Iterator[Part]:
    """Yield the submits of the demo whose jobs complete. After the last submit, begin again."""
    return cycle(part for part in PARTS if part.ends is JobState.COMPLETED)
