"""The table of all actions. Key bindings, footer, command palette and help are made from it.

Lower-case keys only show something; capital letters change something (except `G`, which goes to the end).
"""

from __future__ import annotations

from dataclasses import dataclass
from string import Formatter
from typing import Final

QUEUE, JOB, NODES, NODE, EVENTS = "queue", "job", "nodes", "node", "events"
SHARES, QUOTAS, RESERVATIONS, REBALANCE = "shares", "quotas", "reservations", "rebalance"
LISTS: Final = frozenset({QUEUE, NODES, EVENTS, SHARES, QUOTAS, RESERVATIONS, REBALANCE})
EVERYWHERE: Final = LISTS | {JOB, NODE}
FILTERED: Final = LISTS | {JOB}
JOBS: Final = frozenset({QUEUE, JOB})
HOSTS: Final = frozenset({NODES, NODE})
MARKED: Final = frozenset({QUEUE})
TREE: Final = frozenset({SHARES})
LIMITS: Final = frozenset({QUOTAS})
KEPT: Final = frozenset({RESERVATIONS})
PROPOSED: Final = frozenset({REBALANCE})
LOGS: Final = frozenset({JOB})


@dataclass(frozen=True)
class ScreenAction:
    """An action of the user and the views that have it.

    `command` is the same action as a shell command; words in braces stand for its subject.
    `footer` is its position in the footer (0: not shown).
    """

    name: str
    keys: tuple[str, ...]
    title: str
    help: str
    views: frozenset[str] = EVERYWHERE
    changes: bool = False
    confirms: bool = False
    command: str = ""
    footer: int = 0

    def in_view(self, view: str) -> bool:
        """Whether the view has this action."""
        return view in self.views


LOOKING: Final = (
    ScreenAction("open", ("enter", "l", "right"), "open", "Open what is under the cursor", LISTS, footer=1),
    ScreenAction(
        "filter",
        ("slash",),
        "filter",
        "Show only matching rows: word, !word, field:value, gpus:>=4",
        FILTERED,
        footer=2,
    ),
    ScreenAction(
        "sort", ("s",), "sort", "Choose what to sort by; the same again reverses it", LISTS, footer=3
    ),
    ScreenAction("mark", ("space",), "mark", "Mark the job, to act on several at once", MARKED, footer=4),
    ScreenAction("range", ("v",), "range", "Mark everything from the last mark to the cursor", MARKED),
    ScreenAction("all", ("asterisk",), "all", "Mark everything shown, or unmark it", MARKED),
    ScreenAction(
        "output", ("o",), "output", "Switch between standard output and standard error", LOGS, footer=1
    ),
    ScreenAction("follow", ("f",), "follow", "Stay at the end of the log as it grows", LOGS, footer=8),
    ScreenAction("wrap", ("w",), "wrap", "Wrap long lines of the log", LOGS, footer=9),
    ScreenAction(
        "error", ("e",), "next error", "Jump to the next line that contains an error", LOGS, footer=9
    ),
)

CHANGING: Final = (
    ScreenAction(
        "submit",
        ("N",),
        "new job",
        "Fill in a form and submit a job",
        EVERYWHERE - LIMITS - KEPT,
        changes=True,
        confirms=True,
        command="corral submit …",
        footer=8,
    ),
    ScreenAction(
        "cancel",
        ("C",),
        "cancel",
        "Cancel the marked jobs, or this one",
        JOBS,
        changes=True,
        confirms=True,
        command="corral job cancel {jobs}",
        footer=5,
    ),
    ScreenAction(
        "hold",
        ("H",),
        "hold",
        "Keep queued jobs from starting",
        JOBS,
        changes=True,
        command="corral job hold {jobs}",
        footer=6,
    ),
    ScreenAction(
        "release",
        ("R",),
        "release",
        "Let held jobs start again",
        JOBS,
        changes=True,
        command="corral job release {jobs}",
        footer=7,
    ),
    ScreenAction(
        "preempt",
        ("P",),
        "preempt",
        "Stop running jobs, which save if they can, and queue them again",
        JOBS,
        changes=True,
        confirms=True,
        command="corral job preempt {jobs}",
    ),
    ScreenAction(
        "drain",
        ("D",),
        "drain",
        "Let a node finish what it runs and take nothing new",
        HOSTS,
        changes=True,
        confirms=True,
        command="corral nodes drain {nodes} --why {why}",
        footer=5,
    ),
    ScreenAction(
        "resume",
        ("U",),
        "resume",
        "Let a drained node take work again",
        HOSTS,
        changes=True,
        command="corral nodes resume {nodes}",
        footer=6,
    ),
    ScreenAction(
        "edit_share",
        ("E",),
        "edit share",
        "Change the weight and the limits of a share; the effect on start times is shown first",
        TREE,
        changes=True,
        confirms=True,
        command="corral shares set {share} {weight}",
        footer=5,
    ),
    ScreenAction(
        "new_quota",
        ("N",),
        "new quota",
        "Limit what a user, a project or a queue may hold",
        LIMITS,
        changes=True,
        confirms=True,
        command="corral quota set …",
        footer=6,
    ),
    ScreenAction(
        "edit_quota",
        ("E",),
        "edit quota",
        "Change these limits; the effect on start times is shown first",
        LIMITS,
        changes=True,
        confirms=True,
        command="corral quota set {scope} {name} gpus={gpus}",
        footer=5,
    ),
    ScreenAction(
        "unset_quota",
        ("U",),
        "unset",
        "Take back what was set: what the configuration says holds again",
        LIMITS,
        changes=True,
        confirms=True,
        command="corral quota unset {scope} {name}",
        footer=7,
    ),
    ScreenAction(
        "new_reservation",
        ("N",),
        "reserve",
        "Keep nodes for users or projects, or for maintenance",
        KEPT,
        changes=True,
        confirms=True,
        command="corral reserve create …",
        footer=5,
    ),
    ScreenAction(
        "cancel_reservation",
        ("C",),
        "cancel",
        "Let all jobs start on the nodes again",
        KEPT,
        changes=True,
        confirms=True,
        command="corral reserve cancel {reservation}",
        footer=6,
    ),
    ScreenAction(
        "move",
        ("M",),
        "move",
        "Move jobs as proposed: they save their state, end, and go on in the place kept for them",
        PROPOSED,
        changes=True,
        confirms=True,
        command="corral rebalance run {proposal}",
        footer=5,
    ),
    ScreenAction(
        "move_all",
        ("A",),
        "all moves",
        "Do whatever can be proposed, one after the other",
        PROPOSED,
        changes=True,
        confirms=True,
        command="corral rebalance run all",
        footer=6,
    ),
)

MOVING: Final = (
    ScreenAction("queue", ("1",), "queue", "All jobs", command="corral queue"),
    ScreenAction("nodes", ("2",), "nodes", "All nodes and their GPUs", command="corral nodes"),
    ScreenAction("events", ("3",), "events", "What happened, as it happens", command="corral events -f"),
    ScreenAction(
        "shares", ("4",), "shares", "Shares of the cluster, and what was used", command="corral shares"
    ),
    ScreenAction("quotas", ("5",), "quotas", "Quotas and their use", command="corral quota"),
    ScreenAction(
        "reservations", ("6",), "reservations", "Nodes that are kept, now and later", command="corral reserve"
    ),
    ScreenAction(
        "rebalance", ("7",), "rebalance", "Jobs that could be moved, and were", command="corral rebalance"
    ),
    ScreenAction("next", ("tab",), "next view", "The next of the views"),
    ScreenAction("previous", ("shift+tab",), "previous view", "The view before"),
    ScreenAction(
        "back", ("escape", "h", "left", "backspace"), "back", "Take back the filter, the marks, the view"
    ),
    ScreenAction("down", ("j", "down"), "down", "One line down"),
    ScreenAction("up", ("k", "up"), "up", "One line up"),
    ScreenAction("page_down", ("ctrl+d", "ctrl+f", "pagedown"), "page down", "A page down"),
    ScreenAction("page_up", ("ctrl+u", "ctrl+b", "pageup"), "page up", "A page up"),
    ScreenAction("top", ("g", "home"), "top", "The first line"),
    ScreenAction("end", ("G", "end"), "end", "The last line"),
)

PROGRAM: Final = (
    ScreenAction("copy", ("y",), "copy command", "Copy the same thing as a command for the shell", footer=8),
    ScreenAction("theme", ("t",), "theme", "Other colours: red-green safe, light"),
    ScreenAction(
        "palette", ("colon", "ctrl+p"), "menu", "All that can be done here; a number opens a job", footer=10
    ),
    ScreenAction(
        "help", ("question_mark", "f1"), "help", "All keys of this view, and what they do", footer=11
    ),
    ScreenAction("quit", ("q", "ctrl+c"), "quit", "Leave; all jobs go on running", footer=12),
)

ACTIONS: Final = (*LOOKING, *CHANGING, *MOVING, *PROGRAM)
BY_NAME: Final = {action.name: action for action in ACTIONS}

_SHOWN: Final = {
    "enter": "⏎",
    "space": "␣",
    "slash": "/",
    "colon": ":",
    "question_mark": "?",
    "asterisk": "*",
    "escape": "esc",
    "down": "↓",
    "up": "↑",
    "left": "←",
    "right": "→",
    "pagedown": "pgdn",
    "pageup": "pgup",
    "backspace": "bksp",
}


def words_of(command: str) -> set[str]:
    """The words in braces of a command."""
    return {name for _, name, _, _ in Formatter().parse(command) if name}


def shown_command(action: ScreenAction) -> str:
    """The command of an action with placeholders in capitals, e.g. corral job cancel JOBS."""
    return action.command.format(**{word: word.upper() for word in words_of(action.command)})


def shown_key(key: str) -> str:
    """The name of a key as shown to users."""
    return _SHOWN.get(key, key.replace("ctrl+", "^"))


def actions_of(view: str, read_only: bool) -> list[ScreenAction]:
    """The actions of a view, without those that change something if the user may only look."""
    return [action for action in ACTIONS if action.in_view(view) and not (read_only and action.changes)]


def footer_of(view: str, read_only: bool) -> list[ScreenAction]:
    """The actions in the footer, in its order."""
    shown = [action for action in actions_of(view, read_only) if action.footer]
    return sorted(shown, key=lambda action: action.footer)
