"""Starts the terminal UI and restores the terminal at the end."""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import suppress
from typing import Final

from rich.console import Console

from tui.actions import PULSE
from tui.app import CorralApp
from tui.app_interface import CliFunctions
from tui.data import saved_settings
from tui.data.cluster_feed import LiveFeed
from tui.data.presets import Preset, from_json
from tui.data.request_workers import RequestWorkers
from tui.look.ascii import ascii_only
from tui.look.theme import choose
from wire.http.client import Client, Refused, Unreachable
from wire.text import printable

FIRST_ANSWER_S: Final = 5.0
QUIET_S: Final = 1.0
ANSWERS_S: Final = 20.0
"""After the user has quit, the controller has this many seconds to answer the confirmed changes. After
QUIET_S seconds, a message says that this program waits.
"""
EXIT_USAGE, EXIT_DENIED, EXIT_UNREACHABLE = 2, 4, 7


def run(url: str, cli: CliFunctions, *, read_only: bool = False, preset: str = "") -> int:
    """Run the terminal UI until the user quits, and return the exit code. It is 1 if a change that the user
    has confirmed before quitting failed or was not sent; 2 without a terminal, or if `preset` is unknown; 4
    if the controller refuses the user; and 7 if the controller cannot be reached at the start. `cli` has the
    functions of the command line that the terminal UI uses. `preset` is the name of the preset to show first;
    without a name, the view Pulse is first.
    """
    # Require that stdin, stdout and stderr are terminals: Textual reads stdin and writes the screen to
    # stderr, and this program writes messages to stdout after the terminal UI has ended. If TEXTUAL_DRIVER is
    # set, as by corral web, the three are pipes to its server.
    in_browser = "TEXTUAL_DRIVER" in os.environ
    if not in_browser and not all(stream.isatty() for stream in (sys.stdin, sys.stderr, sys.stdout)):
        return _complain(
            "the terminal UI needs a terminal",
            "Without a terminal use: corral queue, corral nodes",
            EXIT_USAGE,
        )
    saved = saved_settings.load()
    presets = from_json(saved.get(saved_settings.PRESETS))
    if preset and preset not in presets:
        known = f"Saved presets: {', '.join(sorted(presets))}" if presets else "The key m saves a preset"
        return _complain(f"there is no preset {printable(preset, 60)}", known, EXIT_USAGE)
    first_preset = presets.get(preset, Preset(PULSE))
    try:
        first = Client(url, timeout_s=FIRST_ANSWER_S)
        first.health()
        first.close()
    except Unreachable as error:
        return _complain(str(error), error.hint, EXIT_UNREACHABLE)
    except Refused as error:
        return _complain(error.problem.message, error.problem.hint, EXIT_DENIED)
    app = CorralApp(
        LiveFeed(lambda: Client(url, read_only=read_only)),
        lambda: Client(url, read_only=read_only),
        cli,
        url=url,
        read_only=read_only,
        look=choose(
            os.environ,
            "truecolor" if in_browser else Console().color_system,
            str(saved.get("theme", "")),
        ),
        ascii_only=ascii_only(os.environ),
        first_view=first_preset.view,
    )
    app.presets = presets
    app.save_settings = lambda: saved_settings.save_settings(app.roots, app.theme, app.presets)
    threading.excepthook = app.thread_broke
    saved_settings.apply_settings(app.roots, saved)
    if preset:
        first_preset.apply(app.trail[0])
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: app.deliver(lambda: app.exit(128 + number)))
    code = app.run()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    # Keep the presets of the file, because another terminal UI may have saved presets meanwhile.
    presets = from_json(saved_settings.load().get(saved_settings.PRESETS))
    saved_settings.save_settings(app.roots, app.theme, presets)
    failed = _finish_changes(app.requests)
    return app.return_code or code or int(failed)


def _finish_changes(requests: RequestWorkers) -> bool:
    """Wait until the controller has answered the changes that the user has confirmed before quitting. Print
    the changes that failed or were not sent, and return whether there are any.
    """
    if not requests.wait(QUIET_S):
        print("corral: waiting for the controller's answer to a change; Ctrl+C gives up", file=sys.stderr)
        with suppress(KeyboardInterrupt):
            requests.wait(ANSWERS_S)
    errors = requests.give_up()
    for line in errors:
        print(f"corral: {line}", file=sys.stderr)
    return bool(errors)


def _complain(what: str, hint: str, code: int) -> int:
    print(f"corral: {what}", file=sys.stderr)
    if hint:
        print(f"  {hint}", file=sys.stderr)
    return code
