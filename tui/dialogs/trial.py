"""What would come of a form, asked of the controller while one types."""

from __future__ import annotations

from typing import Final

from textual.timer import Timer

from tui.desk import Failure, sentence
from tui.stage import stage
from tui.whatif import outcome
from tui.widgets.facts import Facts
from wire.api.forecasts import WhatIf, WhatIfAnswer
from wire.text import plain

REST_S: Final = 0.3
"""A question is asked once the keys have rested so long: it is tried on a copy of the whole cluster."""


class Trial(Facts):
    """One question at a time; what was typed meanwhile is asked when the answer has come."""

    def __init__(self, lines: int) -> None:
        super().__init__()
        self._height = lines
        self._wish: WhatIf | None = None
        self._told: WhatIf | None = None
        self._asking = False
        self._rest: Timer | None = None

    def on_mount(self) -> None:
        """The place is kept, so that nothing jumps when the answer comes."""
        self.styles.height = self._height

    def try_out(self, wish: WhatIf | None) -> None:
        """Ask about this, if anything."""
        if wish == self._wish or not self.is_attached:
            return
        self._wish, self._told = wish, None
        self._say("working out who would start sooner or later…" if wish else "")
        if self._rest is not None:
            self._rest.stop()
        self._rest = self.set_timer(REST_S, self._ask)

    def _ask(self) -> None:
        wish = self._wish
        if wish is None or self._asking or wish == self._told:
            return
        self._asking = True
        # Nothing is asked any more for a dialog that was closed while others waited for their answers.
        stage(self).trials.ask(
            lambda client: client.what_if(wish) if self.is_attached else None,
            lambda answer: self._answered(wish, answer),
        )

    def _answered(self, wish: WhatIf, answer: WhatIfAnswer | Failure | None) -> None:
        if answer is None or not self.is_attached:
            return
        self._asking, self._told = False, wish
        if wish != self._wish:
            self._ask()
        elif isinstance(answer, WhatIfAnswer):
            self._lines = outcome(answer, self._height)
            self.refresh()
        else:
            self._say(f"what would change cannot be told: {plain(sentence(answer), 300)}")

    def _say(self, text: str) -> None:
        self._lines = [[(text, "faint")]]
        self.refresh()
