"""The lists of tenants, quotas and reservations."""

from __future__ import annotations

from tui.data.lists.listing import Listing
from wire.api.policy.quotas import QuotaView
from wire.api.policy.reservations import ReservationView
from wire.api.policy.shares import ShareView
from wire.cluster.quota import AMOUNTS, ANY_NAME, SCOPES, UNLIMITED


def share_key(share: ShareView) -> str:
    """Return a unique key: the path of the tenant in the fair-share tree, as text. The name alone is not
    unique, because an organisation and a project may have the same name.
    """
    return "\0".join(share.path)


def share_state(share: ShareView) -> str:
    """Return `stopped` if a hard limit keeps jobs of the tenant from starting, `over soft` if the tenant only
    exceeds its soft limit, and an empty text if neither is the case.
    """
    return "stopped" if share.stopped else "over soft" if share.beyond else ""


def share_listing() -> Listing[str, ShareView]:
    """Return a new, empty list of tenants. While the list is sorted by name, the tenants are indented as a
    tree.
    """
    return Listing(
        key=share_key,
        sorts={
            "tree": lambda share: tuple(name.casefold() for name in share.path),
            "weight": lambda share: -share.weight,
            "part": lambda share: -share.part,
            "used": lambda share: -share.used,
            "held": lambda share: -share.held,
            "factor": lambda share: share.factor,
        },
        fields={
            "share": lambda share: share.share,
            "weight": lambda share: share.weight,
            "used": lambda share: share.used,
            "held": lambda share: share.held,
            "factor": lambda share: share.factor,
            "state": share_state,
        },
        haystack=lambda share: " ".join((*share.path, share_state(share))),
    )


def quota_key(quota: QuotaView) -> str:
    """Return a unique key: the scope and the name of a quota, as text. The name alone is not unique, because
    a user and a project may have the same name.
    """
    return f"{quota.scope}\0{quota.name}"


def quota_state(quota: QuotaView) -> str:
    """Return a word for the usage of a quota: `borrows` (above the hard limit; the quota may borrow), `over`
    (above the hard limit, because the limit was lowered while jobs ran), `full` (at the hard limit) or `over
    soft` (above the soft limit). Return an empty text if the usage is below all limits.
    """
    if quota.name == ANY_NAME:
        return ""
    found = {"borrows": False, "over": False, "full": False, "over soft": False}
    for each in AMOUNTS:
        used = quota.counted(each.field)
        hard, soft = (getattr(limits, each.field) for limits in (quota.quota.hard, quota.quota.soft))
        limited = hard not in (None, UNLIMITED)
        found["borrows"] |= limited and used > hard and getattr(quota.quota.borrow, each.field) is not None
        found["over"] |= limited and used > hard
        found["full"] |= limited and used >= hard
        found["over soft"] |= soft not in (None, UNLIMITED) and used > soft
    return next((word for word, true in found.items() if true), "")


def quota_listing() -> Listing[str, QuotaView]:
    """Return a new, empty list of quotas: quotas of users, then of projects, then of queues."""
    return Listing(
        key=quota_key,
        sorts={
            "tenant": lambda quota: (SCOPES.index(quota.scope), quota.name.casefold()),
            "name": lambda quota: quota.name.casefold(),
            "gpus": lambda quota: -(quota.used.gpus or 0),
            "cpus": lambda quota: -(quota.used.cpu_milli or 0),
            "memory": lambda quota: -(quota.used.memory_mib or 0),
            "running": lambda quota: -(quota.used.running or 0),
            "queued": lambda quota: -(quota.used.queued or 0),
            "hours": lambda quota: -(quota.used.gpu_hours or 0),
        },
        fields={
            "of": lambda quota: quota.scope,
            "name": lambda quota: quota.name,
            "state": quota_state,
            "gpus": lambda quota: quota.used.gpus or 0.0,
            "running": lambda quota: float(quota.used.running or 0),
            "queued": lambda quota: float(quota.used.queued or 0),
            "set": lambda quota: "yes" if quota.edited else "no",
        },
        haystack=lambda quota: f"{quota.scope} {quota.name} {quota_state(quota)}",
    )


def reservation_for(row: ReservationView) -> str:
    """Return, as text, the users and projects that may use the reserved nodes; "maintenance" if there are
    none.
    """
    names = [*row.spec.users, *(f"project {name}" for name in row.spec.projects)]
    return ", ".join(names) or "maintenance"


def reservation_listing() -> Listing[str, ReservationView]:
    """Return a new, empty list of reservations, sorted with the earliest start first."""
    return Listing(
        key=lambda row: row.spec.name,
        sorts={
            "begins": lambda row: (row.starts_at, row.spec.name),
            "ends": lambda row: row.ends_at,
            "name": lambda row: row.spec.name.casefold(),
            "state": lambda row: not row.on,
            "for": lambda row: reservation_for(row).casefold(),
            "nodes": lambda row: -len(row.nodes),
        },
        fields={
            "name": lambda row: row.spec.name,
            "state": lambda row: "on" if row.on else "to come",
            "for": reservation_for,
            "node": lambda row: " ".join(row.nodes),
            "nodes": lambda row: float(len(row.nodes)),
            "why": lambda row: row.spec.why,
            "by": lambda row: row.by,
        },
        haystack=lambda row: " ".join(
            (
                row.spec.name,
                "on" if row.on else "to come",
                reservation_for(row),
                *row.nodes,
                row.spec.why,
                row.by,
            )
        ),
    )
