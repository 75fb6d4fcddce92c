"""Every action there is, once: keys, footer, palette and help are made from this list.

Lower-case keys only look; capitals change something (`G`, the end of a list, is vim's and stays).
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
class Action:
    """Something that can be done, where, and how else one would do it.

    `command` is the same thing for a shell; words in braces stand for what it is about.
    `footer` is its place in the footer (0: not there).
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
        """Whether it makes sense there."""
        return view in self.views


LOOKING: Final = (
    Action("open", ("enter", "l", "right"), "open", "Open what is under the cursor", LISTS, footer=1),
    Action(
        "filter", ("slash",), "filter", "Narrow it: word, !word, field:value, gpus:>=4", FILTERED, footer=2
    ),
    Action("sort", ("s",), "sort", "Choose what to sort by; the same again turns it round", LISTS, footer=3),
    Action("mark", ("space",), "mark", "Mark the job, to act on several at once", MARKED, footer=4),
    Action("range", ("v",), "range", "Mark everything from the last mark to the cursor", MARKED),
    Action("all", ("asterisk",), "all", "Mark everything shown, or unmark it", MARKED),
    Action("output", ("o",), "output", "Switch between standard output and standard error", LOGS, footer=1),
    Action("follow", ("f",), "follow", "Stay at the end of the log as it grows", LOGS, footer=3),
    Action("wrap", ("w",), "wrap", "Wrap long lines of the log", LOGS, footer=4),
    Action("error", ("e",), "next error", "Jump to the next line that speaks of an error", LOGS, footer=5),
)

CHANGING: Final = (
    Action(
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
    Action(
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
    Action(
        "hold",
        ("H",),
        "hold",
        "Keep queued jobs from starting",
        JOBS,
        changes=True,
        command="corral job hold {jobs}",
        footer=6,
    ),
    Action(
        "release",
        ("R",),
        "release",
        "Let held jobs start again",
        JOBS,
        changes=True,
        command="corral job release {jobs}",
        footer=7,
    ),
    Action(
        "preempt",
        ("P",),
        "preempt",
        "End what running jobs do, and queue them again in their places",
        JOBS,
        changes=True,
        confirms=True,
        command="corral job preempt {jobs}",
    ),
    Action(
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
    Action(
        "resume",
        ("U",),
        "resume",
        "Let a drained node take work again",
        HOSTS,
        changes=True,
        command="corral nodes resume {nodes}",
        footer=6,
    ),
    Action(
        "edit_share",
        ("E",),
        "edit share",
        "Change the weight and the limits of a share; who would start when is shown first",
        TREE,
        changes=True,
        confirms=True,
        command="corral shares set {share} {weight}",
        footer=5,
    ),
    Action(
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
    Action(
        "edit_quota",
        ("E",),
        "edit quota",
        "Change these limits; who would start when is shown first",
        LIMITS,
        changes=True,
        confirms=True,
        command="corral quota set {scope} {name} gpus={gpus}",
        footer=5,
    ),
    Action(
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
    Action(
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
    Action(
        "cancel_reservation",
        ("C",),
        "cancel",
        "Give the nodes back to everybody",
        KEPT,
        changes=True,
        confirms=True,
        command="corral reserve cancel {reservation}",
        footer=6,
    ),
    Action(
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
    Action(
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
    Action("queue", ("1",), "queue", "All jobs", command="corral queue"),
    Action("nodes", ("2",), "nodes", "All nodes and their GPUs", command="corral nodes"),
    Action("events", ("3",), "events", "What happened, as it happens", command="corral events -f"),
    Action("shares", ("4",), "shares", "Who is to have how much, and who had it", command="corral shares"),
    Action("quotas", ("5",), "quotas", "What everybody may hold, and does", command="corral quota"),
    Action(
        "reservations", ("6",), "reservations", "Nodes that are kept, now and later", command="corral reserve"
    ),
    Action(
        "rebalance", ("7",), "rebalance", "Jobs that could be moved, and were", command="corral rebalance"
    ),
    Action("next", ("tab",), "next view", "The next of the views"),
    Action("previous", ("shift+tab",), "previous view", "The view before"),
    Action("back", ("escape", "h", "left", "backspace"), "back", "Take back the filter, the marks, the view"),
    Action("down", ("j", "down"), "down", "One line down"),
    Action("up", ("k", "up"), "up", "One line up"),
    Action("page_down", ("ctrl+d", "ctrl+f", "pagedown"), "page down", "A page down"),
    Action("page_up", ("ctrl+u", "ctrl+b", "pageup"), "page up", "A page up"),
    Action("top", ("g", "home"), "top", "The first line"),
    Action("end", ("G", "end"), "end", "The last line"),
)

PROGRAM: Final = (
    Action("copy", ("y",), "copy command", "Copy the same thing as a command for the shell", footer=9),
    Action("theme", ("t",), "theme", "Other colours: red-green safe, light"),
    Action(
        "palette", ("colon", "ctrl+p"), "menu", "All that can be done here; a number opens a job", footer=10
    ),
    Action("help", ("question_mark", "f1"), "help", "All keys of this view, and what they do", footer=11),
    Action("quit", ("q", "ctrl+c"), "quit", "Leave; nothing stops running", footer=12),
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
    """The words of a command that stand for what it is about."""
    return {name for _, name, _, _ in Formatter().parse(command) if name}


def shown_command(action: Action) -> str:
    """The command of an action, whatever it may be about: corral job cancel JOBS."""
    return action.command.format(**{word: word.upper() for word in words_of(action.command)})


def shown_key(key: str) -> str:
    """A key as people know it."""
    return _SHOWN.get(key, key.replace("ctrl+", "^"))


def actions_of(view: str, read_only: bool) -> list[Action]:
    """The actions of a view; what changes something is not even shown to who may only look."""
    return [action for action in ACTIONS if action.in_view(view) and not (read_only and action.changes)]


def footer_of(view: str, read_only: bool) -> list[Action]:
    """The actions whose keys the footer shows, in its order."""
    shown = [action for action in actions_of(view, read_only) if action.footer]
    return sorted(shown, key=lambda action: action.footer)
