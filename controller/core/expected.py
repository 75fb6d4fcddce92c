"""Who with labels or demands is promised a place where, so that nobody is promised one in their way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from controller.core.columns import Bools
from controller.core.nodes import Nodes
from controller.core.requests import Part


class Expected:
    """Rows by part, counted; only parts to which company matters."""

    def __init__(self) -> None:
        self._labelled: dict[Part, Counter[int]] = {}
        self._demanding: dict[Part, Counter[int]] = {}

    def twin(self) -> Expected:
        """The same, to be changed without consequences."""
        other = Expected()
        other._labelled = {part: Counter(rows) for part, rows in self._labelled.items()}
        other._demanding = {part: Counter(rows) for part, rows in self._demanding.items()}
        return other

    def add(self, part: Part, rows: Iterable[int], sign: int) -> None:
        """The part is promised these rows (1), or no longer (-1)."""
        if not part.social:
            return
        known = self._demanding if _demands(part) else self._labelled
        counts = known.setdefault(part, Counter())
        for row in rows:
            counts[row] += sign
            if not counts[row]:
                del counts[row]
        if not counts:
            del known[part]

    def suited(self, part: Part, nodes: Nodes) -> Bools | None:
        """Where the part is in the company it demands now, and in nobody's way; None: everywhere."""
        if not part.social:
            return None
        company, columns = nodes.company, nodes.columns
        others = [*self._demanding.items(), *(self._labelled.items() if _demands(part) else ())]
        mask = company.keep(part, columns) if company.concerns(part) else None
        for other, rows in others:
            spoilt = company.spoils(part, other, list(rows), columns)
            if spoilt is not None:
                mask = ~spoilt if mask is None else mask & ~spoilt
        return mask


def _demands(part: Part) -> bool:
    return any(not term.prefer for term in part.company)
