"""Sends only the changed cells of the screen to the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.control import Control
from textual._compositor import ChopsUpdate


class ChangedCells(ChopsUpdate):
    """An update of parts of the screen. Textual sends each line from the left edge of a widget up to the
    changed part. This class sends only the changed part, because a clock at the end of each line would
    otherwise send the whole screen every second.
    """

    @classmethod
    def of(cls, update: ChopsUpdate) -> ChangedCells:
        return cls(update.chops, update.spans, update.chop_ends)

    def render_segments(self, console: Console) -> str:
        """Return the texts of the changed cells, each after a control sequence that moves the cursor."""
        sent: list[str] = []
        for y, begin, end in self.spans:
            for right, (left, strip) in zip(self.chop_ends[y], self.chops[y].items(), strict=False):
                first, last = max(begin, left), min(end, right)
                if strip is not None and first < last:
                    sent.append(Control.move_to(first, y).segment.text)
                    sent.append(strip.crop(first - left, last - left).render(console))
        return "".join(sent)
