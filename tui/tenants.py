"""Lists of who may have how much: shares."""

from __future__ import annotations

from tui.listing import Listing
from wire.api.tenants import ShareView


def share_key(share: ShareView) -> str:
    """Where it is in the tree: an organisation and a project may have the same name."""
    return "\0".join(share.path)


def share_state(share: ShareView) -> str:
    """In a word, if it is beyond what it may use."""
    return "stopped" if share.stopped else "over soft" if share.beyond else ""


def share_listing() -> Listing[str, ShareView]:
    """Shares as a tree; sorted by anything else they are a plain list."""
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
