"""The table of all actions of the terminal UI. Key bindings, the footer, the command menu and the help are
built from this table.

Actions that change the cluster have a capital letter as their key. The only other capital letter is `G`,
which goes to the end of the list.
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
    """An action of the user, its key, and the views in which the action is available.

    `command` is the shell command that does the same as the action. A word in braces, such as {jobs}, stands
    for the marked jobs or the job under the cursor. `footer` is the position of the action in the footer; 0
    means that the footer does not show it.
    """

    name: str
    keys: tuple[str, ...]
    title: str
    help: str
    views: frozenset[str] = EVERYWHERE
    changes: bool = False
    command: str = ""
    footer: int = 0

    def in_view(self, view: str) -> bool:
        return view in self.views


def _change(
    name: str, key: str, title: str, help: str, views: frozenset[str], command: str, footer: int = 0
) -> ScreenAction:
    """Return an action that changes the cluster. Its key must be a capital letter."""
    return ScreenAction(name, (key,), title, help, views, True, command, footer)


LOOKING: Final = (
    ScreenAction("open", ("enter", "l", "right"), "open", "Open the row under the cursor", LISTS, footer=1),
    ScreenAction(
        "filter",
        ("slash",),
        "filter",
        "Show only matching rows: word, !word, field:value, gpus:>=4",
        FILTERED,
        footer=2,
    ),
    ScreenAction(
        "sort",
        ("s",),
        "sort",
        "Choose the sort column; the same column again reverses the order",
        LISTS,
        footer=3,
    ),
    ScreenAction(
        "mark", ("space",), "mark", "Mark the job: an action applies to all marked jobs", MARKED, footer=4
    ),
    ScreenAction("range", ("v",), "range", "Mark all jobs from the last mark to the cursor", MARKED),
    ScreenAction(
        "fold", ("z",), "fold", "Show the jobs of this workload or array, or fold them again", MARKED
    ),
    ScreenAction(
        "foldall",
        ("minus",),
        "fold all",
        "Show the jobs of all workloads and arrays, or fold them again",
        MARKED,
    ),
    ScreenAction("all", ("asterisk",), "all", "Mark all shown jobs, or unmark them", MARKED),
    ScreenAction(
        "output", ("o",), "output", "Switch between standard output and standard error", LOGS, footer=1
    ),
    ScreenAction("follow", ("f",), "follow", "Stay at the end of the log as it grows", LOGS, footer=8),
    ScreenAction("wrap", ("w",), "wrap", "Wrap long lines of the log, or cut them", LOGS, footer=9),
    ScreenAction(
        "error", ("e",), "next error", "Jump to the next line that contains an error", LOGS, footer=9
    ),
)

CHANGING: Final = (
    _change(
        "submit",
        "N",
        "new job",
        "Fill in a form and submit a job",
        EVERYWHERE - LIMITS - KEPT,
        "corral submit …",
        8,
    ),
    _change(
        "cancel",
        "C",
        "cancel",
        "Cancel the marked jobs, or the job under the cursor",
        JOBS,
        "corral job cancel {jobs}",
        5,
    ),
    _change("hold", "H", "hold", "Keep queued jobs from starting", JOBS, "corral job hold {jobs}", 6),
    _change("release", "R", "release", "Let held jobs start again", JOBS, "corral job release {jobs}", 7),
    _change(
        "preempt",
        "P",
        "preempt",
        "Stop running jobs, after they have saved their state if they can, and queue them again",
        JOBS,
        "corral job preempt {jobs}",
    ),
    _change(
        "drain",
        "D",
        "drain",
        "Drain a node: running jobs continue, but no new job starts there",
        HOSTS,
        "corral nodes drain {nodes} --why {why}",
        5,
    ),
    _change(
        "drain_by",
        "T",
        "drain by a time",
        "Empty a node by a time: jobs that still run then continue on other nodes, or are ended",
        HOSTS,
        "corral nodes drain {nodes} --by {time}",
    ),
    _change(
        "resume",
        "U",
        "resume",
        "Let jobs start on a drained node again",
        HOSTS,
        "corral nodes resume {nodes}",
        6,
    ),
    _change(
        "edit_share",
        "E",
        "edit share",
        "Change the weight and the limits of a share; the effect on start times is shown first",
        TREE,
        "corral shares set {share} {weight}",
        5,
    ),
    _change(
        "new_quota",
        "N",
        "new quota",
        "Limit the resources of a user, a project or a queue",
        LIMITS,
        "corral quota set …",
        6,
    ),
    _change(
        "edit_quota",
        "E",
        "edit quota",
        "Change the limits of the quota; the effect on start times is shown first",
        LIMITS,
        "corral quota set {scope} {name} gpus={gpus}",
        5,
    ),
    _change(
        "unset_quota",
        "U",
        "unset",
        "Remove the limits that were set; those of scheduler.toml apply again",
        LIMITS,
        "corral quota unset {scope} {name}",
        7,
    ),
    _change(
        "new_reservation",
        "N",
        "reserve",
        "Reserve nodes for users or projects, or for maintenance",
        KEPT,
        "corral reserve create …",
        5,
    ),
    _change(
        "cancel_reservation",
        "C",
        "cancel",
        "Cancel the reservation, so that all jobs can use its nodes again",
        KEPT,
        "corral reserve cancel {reservation}",
        6,
    ),
    _change(
        "move",
        "M",
        "move",
        "Move jobs as proposed: they save their state, stop, and continue on the nodes reserved for them",
        PROPOSED,
        "corral rebalance run {proposal}",
        5,
    ),
    _change(
        "move_all",
        "A",
        "all moves",
        "Carry out all proposals, one after the other",
        PROPOSED,
        "corral rebalance run all",
        6,
    ),
)

MOVING: Final = (
    ScreenAction("queue", ("1",), "queue", "All jobs", command="corral queue"),
    ScreenAction("nodes", ("2",), "nodes", "All nodes and their GPUs", command="corral nodes"),
    ScreenAction("events", ("3",), "events", "Events as they happen", command="corral events -f"),
    ScreenAction("shares", ("4",), "shares", "Fair shares and past usage", command="corral shares"),
    ScreenAction("quotas", ("5",), "quotas", "Quotas and their use", command="corral quota"),
    ScreenAction(
        "reservations",
        ("6",),
        "reservations",
        "Present and future reservations of nodes",
        command="corral reserve",
    ),
    ScreenAction(
        "rebalance",
        ("7",),
        "rebalance",
        "Proposed and recent moves of running jobs",
        command="corral rebalance",
    ),
    ScreenAction("next", ("tab",), "next view", "Go to the next view"),
    ScreenAction("previous", ("shift+tab",), "previous view", "Go to the previous view"),
    ScreenAction(
        "back",
        ("escape", "h", "left", "backspace"),
        "back",
        "Remove the filter or the marks, or leave the view",
    ),
    ScreenAction("down", ("j", "down"), "down", "One line down"),
    ScreenAction("up", ("k", "up"), "up", "One line up"),
    ScreenAction("page_down", ("ctrl+d", "ctrl+f", "pagedown"), "page down", "A page down"),
    ScreenAction("page_up", ("ctrl+u", "ctrl+b", "pageup"), "page up", "A page up"),
    ScreenAction("top", ("g", "home"), "top", "The first line"),
    ScreenAction("end", ("G", "end"), "end", "The last line"),
)

PROGRAM: Final = (
    ScreenAction(
        "copy",
        ("y",),
        "copy command",
        "Copy a shell command that does the same as an action of the view",
        footer=8,
    ),
    ScreenAction(
        "theme", ("t",), "theme", "Choose other colours, such as light, or safe for red-green blindness"
    ),
    ScreenAction(
        "palette", ("colon", "ctrl+p"), "menu", "All actions of this view; a number opens a job", footer=10
    ),
    ScreenAction("help", ("question_mark", "f1"), "help", "All keys of this view", footer=11),
    ScreenAction("quit", ("q", "ctrl+c"), "quit", "Quit; all jobs go on running", footer=12),
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
    """Return the placeholders of a shell command: the words in braces, such as jobs for {jobs}."""
    return {name for _, name, _, _ in Formatter().parse(command) if name}


def shown_command(action: ScreenAction) -> str:
    """Return the shell command of an action with placeholders in capitals, such as corral job cancel JOBS."""
    return action.command.format(**{word: word.upper() for word in words_of(action.command)})


def shown_key(key: str) -> str:
    return _SHOWN.get(key, key.replace("ctrl+", "^"))


def actions_of(view: str, read_only: bool) -> list[ScreenAction]:
    """Return the actions of a view. If `read_only` is true, leave out the actions that change the cluster."""
    return [action for action in ACTIONS if action.in_view(view) and not (read_only and action.changes)]


def footer_of(view: str, read_only: bool) -> list[ScreenAction]:
    shown = [action for action in actions_of(view, read_only) if action.footer]
    return sorted(shown, key=lambda action: action.footer)
