"""The symbols of the screen. Symbols with different meanings have different shapes, so that users can
distinguish them without colours.
"""

from __future__ import annotations

from typing import Final

from wire.names import JobState, NodeState

JOB: Final = {
    JobState.QUEUED: "○",
    JobState.SCHEDULED: "◐",
    JobState.RUNNING: "●",
    JobState.PREEMPTED: "↺",
    JobState.COMPLETED: "✓",
    JobState.FAILED: "✗",
    JobState.CANCELLED: "⊘",
}
HELD: Final = "‖"
NODE: Final = {NodeState.UP: "▲", NodeState.DRAINED: "▽", NodeState.SUSPECT: "◌", NodeState.DOWN: "✗"}
GPU: Final = {"busy": "■", "share": "◧", "free": "□", "sick": "✗"}
GPU_WORD: Final = {"busy": "busy", "share": "share", "free": "free", "sick": "out"}
LEVELS: Final = "▁▂▃▄▅▆▇█"
MARK: Final = "◆"
CURSOR: Final = "▌"
ASCENDING: Final = "▴"
DESCENDING: Final = "▾"
LIVE: Final = "●"
ALARM: Final = {"bad": "▲", "warn": "△"}
LONG_WAIT: Final = "!"
"""Follows the state of a job that waits much longer than usual."""
MOVE: Final = {"proposed": "○", "under way": "◐", "moved": "✓", "undone": "↺"}
ON, COMING = "●", "○"
STALE: Final = "◌"

ASCII: Final = {
    ord(sign): plain
    for signs, plain in (
        ("○", "o"),
        ("◐▒", "%"),
        ("●", "*"),
        ("↺", "@"),
        ("✓", "+"),
        ("✗╳", "x"),
        ("⊘", "-"),
        ("‖", "="),
        ("▲▴", "^"),
        ("△", "!"),
        ("▽▾", "v"),
        ("■", "#"),
        ("░", "."),
        ("◧", "%"),
        ("□", "."),
        ("▁▂", "_"),
        ("▃▄", "-"),
        ("▅▆", "="),
        ("▇█", "#"),
        ("━╸", "="),
        ("─┈┄╶╴", "-"),
        ("│┃▐▌▏▎▍▋▊▉┆", "|"),
        ("╭╮╰╯┌┐└┘├┤┼┬┴", "+"),
        ("◆", "#"),
        ("◌", "?"),
        ("›", ">"),
        ("·", "."),
        ("…≈", "~"),
        ("≤", "<"),
        ("⏎", "<"),
        ("␣", "_"),
        ("→", ">"),
        ("←", "<"),
        ("↑", "^"),
        ("↓", "v"),
        ("×", "x"),
        ("°", "C"),
        ("“”", '"'),
        ("’", "'"),
    )
    for sign in signs
} | {0x2800 + dots: " .:-=+*#@"[dots.bit_count()] for dots in range(256)}
"""The ASCII character for each symbol, by code point. A Braille character with more dots becomes a darker
ASCII character. Characters without an entry become question marks.
"""
