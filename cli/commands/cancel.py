"""corral cancel: the short form of corral job cancel."""

from __future__ import annotations

from cli.commands.job import cancel
from cli.registry import application, examples

app = application()
app.command(epilog=examples("corral cancel 7", "corral cancel 7_[0-9] 12-15", "corral cancel --mine"))(cancel)
