"""Finds reasons for notices that follow from several events: nearly used quotas, slow scheduling cycles, and
changed health of GPUs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from controller.core.model.events.attempts import JobEnded, JobGrew, JobPlaced
from controller.core.model.events.event import Event
from controller.core.model.events.nodes import GpuHealthRecorded
from controller.core.model.events.queued import JobQueued
from controller.core.model.rows import NoteRow
from controller.core.quota.limit_exceeded import amount_text, limit_name
from controller.core.quota.usage_counters import FIRST_MODEL, TenantKey, TenantUsage
from controller.core.state.state import State
from controller.notify.messages import Notice
from wire.names import GpuHealth

QUOTA_NOTE = "notify-quota"
"""The `kind` column of the database rows that record the sent notices about quotas."""
STEPS = (100, 80)
"""A notice is sent when the used percentage of a limit reaches one of these numbers."""
AGAIN_BELOW = 60
"""A notice about a limit can be sent again when the used percentage has fallen below this number."""
SLOW_AGAIN_S = 3_600.0
"""Seconds between two notices about slow cycles."""
QUOTA_WORDS = frozenset(("quota.80", "quota.100"))

LimitKey = tuple[str, str, str]
"""The scope and name of a tenant, and the name of one of its limits, such as ("user", "ann", "the quota of
user 'ann' on CPUs").
"""


class Conditions:
    """Finds conditions of the cluster that need a notice: nearly used quotas, slow cycles, and changed health
    of GPUs. Records the sent notices, so that none is sent twice.

    Quotas
    1. When a job is queued, placed, grows or ends, compare the usage of its user, project and queue with each
       of their hard limits. If the usage reaches 80 % or 100 % of a limit for the first time, yield a notice.
    2. When the usage falls below 60 % of the limit, forget the sent notice, so that it can be sent again. The
       sent notices are stored, so a restart of the controller does not repeat a notice.

    Cost: one comparison per limit for each user, project and queue with changed jobs in a commit.
    """

    def __init__(self) -> None:
        self._quota_steps: dict[LimitKey, int] = {}
        """The highest percentage about which a notice was sent, by limit."""
        self._changed: dict[LimitKey, None] = {}
        self._gpu_health: dict[tuple[str, str], GpuHealth] = {}
        self._slow: Notice | None = None
        self._slow_at = 0.0

    def load(self, notes: Iterable[NoteRow]) -> None:
        """Load the record of the sent notices about quotas from the database rows."""
        self._quota_steps.clear()
        self._changed.clear()
        for note in notes:
            if note.kind == QUOTA_NOTE and note.body is not None:
                scope, name, what = json.loads(note.name)
                self._quota_steps[scope, name, what] = int(note.body)

    def take_changed(self) -> list[NoteRow]:
        """Return the database rows that record the notices about quotas that were sent or forgotten since the
        last call.
        """
        rows = []
        for key in self._changed:
            step = self._quota_steps.get(key)
            rows.append(NoteRow(QUOTA_NOTE, json.dumps(key), None if step is None else str(step)))
        self._changed.clear()
        return rows

    def is_news(self, event: GpuHealthRecorded) -> bool:
        """Return whether the health of a GPU differs from the health recorded by earlier calls, or the GPU
        stays in service in spite of a fault. PROBING is not recorded.
        """
        key = event.node, event.uuid
        before = self._gpu_health.get(key, GpuHealth.OK)
        if event.health is GpuHealth.OK:
            self._gpu_health.pop(key, None)
        elif event.health is not GpuHealth.PROBING:
            self._gpu_health[key] = event.health
        return event.health is not before or bool(event.health is GpuHealth.OK and event.why)

    def pass_took(self, seconds: float, limit_s: float, now: float) -> None:
        """Record how long a scheduling cycle took. If the cycle took too long, the next commit contains a
        notice.
        """
        if limit_s and seconds > limit_s and now - self._slow_at >= SLOW_AGAIN_S:
            self._slow_at = now
            self._slow = Notice(
                "cycle.slow",
                now,
                "a scheduling cycle was slow",
                f"A scheduling cycle took {seconds:.1f} s, longer than {limit_s:g} s. Jobs start later than "
                "they could.",
                "See the histogram corral_cycle_seconds in /metrics, and the load of the controller's host.",
            )

    def take_slow(self) -> Iterator[Notice]:
        """Yield the notice about a slow cycle that pass_took() has made since the last call, if any."""
        found, self._slow = self._slow, None
        if found is not None:
            yield found

    def quotas(self, state: State, events: Iterable[Event]) -> Iterator[Notice]:
        """Yield a notice for each hard limit of which these events have brought the use to 80 % or 100 %. The
        notice is repeated only after the use has fallen below AGAIN_BELOW %.
        """
        if state.quotas.unlimited:
            return
        tenants: dict[TenantKey, TenantUsage] = {}
        now = 0.0
        for event in events:
            if isinstance(event, JobPlaced | JobGrew | JobQueued | JobEnded):
                job, now = state.jobs.get(event.job), event.at
                if job is not None:
                    tenants.update((each.key, each) for each in state.accounts.tenants_of(job.user, job.spec))
        for key, account in tenants.items():
            for kind, limit in state.quotas.limits_of(key).hard:
                if limit > 0:
                    used = account.amount(kind, now, state.accounts.window_s)
                    model = state.quotas.model_of(kind) if kind >= FIRST_MODEL else ""
                    yield from self._quota(key, kind, model, used, limit, now)

    def _quota(
        self, key: TenantKey, kind: int, model: str, used: int, limit: int, now: float
    ) -> Iterator[Notice]:
        (scope, name), percent = key, 100 * used // limit
        named = limit_name(key, kind, model)
        limit_key = scope, name, named
        before = self._quota_steps.get(limit_key, 0)
        if percent < AGAIN_BELOW and before:
            del self._quota_steps[limit_key]
            self._changed[limit_key] = None
        step = next((each for each in STEPS if percent >= each), 0)
        if step <= before:
            return
        self._quota_steps[limit_key] = step
        self._changed[limit_key] = None
        then = " Further jobs wait until running jobs end." if step == 100 else ""
        yield Notice(
            f"quota.{step}",
            now,
            f"{percent} % of {named} is in use",
            f"Of {named}, {amount_text(kind, used)} of {amount_text(kind, limit)} is in use.{then}",
            "See all quotas: corral quota",
            user=name if scope == "user" else "",
            project=name if scope == "project" else "",
            queue=name if scope == "queue" else "",
        )
