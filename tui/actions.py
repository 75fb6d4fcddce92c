"""The table of all actions of the terminal UI. Key bindings, the footer, the command menu and the help are
built from this table.

Actions that change the cluster have a capital letter as their key. Only two other actions have a capital
letter: `G` moves the cursor to the end of the list, and `N` in the view of a job shows the previous match of
the search.
"""

from __future__ import annotations

from dataclasses import dataclass
from string import Formatter
from typing import Final

PULSE, QUEUE, JOB, NODES, NODE, EVENTS = "pulse", "queue", "job", "nodes", "node", "events"
SHARES, QUOTAS, RESERVATIONS, REBALANCE, PLAN = "shares", "quotas", "reservations", "rebalance", "plan"
CALENDAR = "calendar"
LISTS: Final = frozenset({QUEUE, NODES, EVENTS, SHARES, QUOTAS, RESERVATIONS, REBALANCE})
EVERYWHERE: Final = LISTS | {PULSE, PLAN, JOB, NODE, CALENDAR}
OPENED: Final = LISTS | {PULSE, PLAN, NODE, CALENDAR}
ROOTS: Final = LISTS | {PULSE, PLAN}
DETAILS: Final = frozenset({NODE})
FILTERED: Final = LISTS | {PLAN, JOB}
JOBS: Final = frozenset({QUEUE, PLAN, JOB})
IN_JOBS: Final = frozenset({QUEUE, JOB})
HOSTS: Final = frozenset({NODES, PLAN, NODE})
FOLDED: Final = frozenset({QUEUE})
MARKED: Final = frozenset({QUEUE, NODES})
TREE: Final = frozenset({SHARES})
LIMITS: Final = frozenset({QUOTAS})
KEPT: Final = frozenset({RESERVATIONS})
PROPOSED: Final = frozenset({REBALANCE})
LOGS: Final = frozenset({JOB})
GRAPHS: Final = frozenset({PULSE, CALENDAR})
WINDOW: Final = frozenset({CALENDAR})
CHART: Final = frozenset({PLAN})


@dataclass(frozen=True)
class ScreenAction:
    """An action of the user, its keys, and the views in which the action is available.

    `command` is the shell command that does the same as the action. Its placeholders are words in braces:
    {jobs}, for example, stands for the ids of the marked jobs, or of the job under the cursor. `footer` is
    the rank of the action in the footer, from 1 on the left; 0 means that the action is not in the footer.
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
    name: str, keys: str, title: str, help: str, views: frozenset[str], command: str, footer: int = 0
) -> ScreenAction:
    """Return an action that changes the cluster. Each letter of `keys` must be a capital letter."""
    return ScreenAction(name, tuple(keys), title, help, views, True, command, footer)


LOOKING: Final = (
    ScreenAction(
        "open", ("enter", "l", "right"), "open", "Open the row or the job under the cursor", OPENED, footer=1
    ),
    ScreenAction(
        "filter",
        ("slash", "ampersand"),
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
    ScreenAction("columns", ("c",), "columns", "Show or hide columns of the list", LISTS),
    ScreenAction(
        "mark", ("space",), "mark", "Mark the row: an action applies to all marked rows", MARKED, footer=4
    ),
    ScreenAction("range", ("v",), "range", "Mark all rows from the row marked last to the cursor", MARKED),
    ScreenAction(
        "fold", ("z",), "fold", "Show the jobs of this workload or array, or fold them again", FOLDED
    ),
    ScreenAction(
        "foldall",
        ("minus",),
        "fold all",
        "Show the jobs of all workloads and arrays, or fold them again",
        FOLDED,
    ),
    ScreenAction("peek", ("i",), "peek", "Show the job under the cursor beside the list, or hide it", FOLDED),
    ScreenAction("all", ("asterisk",), "all", "Mark all shown rows, or unmark them", MARKED),
    ScreenAction("tab_right", ("tab",), "next tab", "Show the next tab of the job", LOGS, footer=1),
    ScreenAction("tab_left", ("shift+tab",), "previous tab", "Show the previous tab of the job", LOGS),
    ScreenAction(
        "first_advice",
        ("1",),
        "first advice",
        "Make the first change that the tab why suggests, after a confirmation. Without one, go to the queue",
        LOGS,
    ),
    ScreenAction(
        "find",
        ("slash",),
        "search",
        "Search for a text in the whole log, on the node that stores the log",
        LOGS,
        footer=1,
    ),
    ScreenAction("next_match", ("n",), "next match", "Go to the next match of the search", LOGS),
    ScreenAction("match_before", ("N",), "previous match", "Go to the previous match of the search", LOGS),
    ScreenAction(
        "output", ("o",), "output", "Switch between standard output and standard error", LOGS, footer=4
    ),
    ScreenAction(
        "longer", ("right_square_bracket",), "longer", "Show a longer time in the graphs", GRAPHS, footer=3
    ),
    ScreenAction(
        "shorter", ("left_square_bracket",), "shorter", "Show a shorter time in the graphs", GRAPHS, footer=2
    ),
    ScreenAction(
        "calendar", ("c",), "calendar", "Show reservations and running jobs by node and hour", KEPT, footer=4
    ),
    ScreenAction(
        "window_later", ("right", "l"), "later", "Move the window to a later time", WINDOW, footer=1
    ),
    ScreenAction("window_earlier", ("left", "h"), "earlier", "Move the window to an earlier time", WINDOW),
    ScreenAction("window_longer", ("plus", "equals_sign"), "longer window", "Make the window longer", WINDOW),
    ScreenAction("window_shorter", ("minus",), "shorter window", "Make the window shorter", WINDOW),
    ScreenAction(
        "mark_node", ("space",), "mark", "Choose several nodes for the reservation", WINDOW, footer=3
    ),
    ScreenAction("group", ("n",), "rows by", "Show rows by node, by job or by user", CHART, footer=3),
    ScreenAction("apart", ("z",), "apart", "Draw jobs that overlap in separate rows", CHART, footer=4),
    ScreenAction("zoom_in", ("plus", "equals_sign"), "zoom in", "Show a shorter time", CHART, footer=4),
    ScreenAction("zoom_out", ("minus",), "zoom out", "Show a longer time", CHART, footer=4),
    ScreenAction(
        "later", ("right", "l"), "next job", "Go to the next job of the row, or to later times", CHART
    ),
    ScreenAction(
        "earlier",
        ("left", "h"),
        "previous job",
        "Go to the previous job of the row, or to earlier times",
        CHART,
    ),
    ScreenAction("pan_right", ("full_stop", "greater_than_sign"), "later", "Show later times", CHART),
    ScreenAction("pan_left", ("comma", "less_than_sign"), "earlier", "Show earlier times", CHART),
    ScreenAction(
        "what_if",
        ("w",),
        "what if…",
        "Try a change: the chart shows which jobs would start sooner or later; nothing changes yet",
        CHART,
        footer=2,
    ),
    ScreenAction("follow_now", ("f",), "now", "Show the present time at the left edge", CHART),
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
        EVERYWHERE - LIMITS - KEPT - LOGS - WINDOW,
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
        "requeue",
        "Q",
        "requeue",
        "Stop running jobs, after they have saved their state if they can, and queue them again at once",
        JOBS,
        "corral job requeue {jobs}",
    ),
    _change(
        "edit_job",
        "E",
        "edit",
        "Change the priority, time limit, queue or begin time of jobs; the effect is shown first",
        JOBS,
        "corral job set {jobs} …",
    ),
    _change(
        "raise_priority",
        "K",
        "raise priority",
        "Raise the priority of jobs by 10; the effect is shown first",
        JOBS,
        "corral job set {jobs} --priority …",
    ),
    _change(
        "lower_priority",
        "J",
        "lower priority",
        "Lower the priority of jobs by 10; the effect is shown first",
        JOBS,
        "corral job set {jobs} --priority …",
    ),
    _change(
        "attach",
        "S",
        "shell",
        "Open a shell in the running job. The terminal UI returns when the shell ends",
        IN_JOBS,
        "corral attach …",
    ),
    _change(
        "run_in_job",
        "X",
        "execute",
        "Run a command in the running job, such as nvidia-smi",
        IN_JOBS,
        "corral exec …",
    ),
    _change(
        "apply_advice",
        "A",
        "apply advice",
        "Make the first change that would start the job now",
        LOGS,
        "corral job set {jobs} …",
    ),
    _change(
        "cordon_gpu",
        "X",
        "cordon GPU",
        "Start no new jobs on the GPU under the cursor; running jobs continue",
        DETAILS,
        "corral nodes cordon {gpu}",
        7,
    ),
    _change(
        "drain",
        "DX",
        "drain",
        "Drain (cordon) a node: running jobs continue, but no new job starts there",
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
        "Let jobs start on a drained node, or on the cordoned GPU under the cursor, again",
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
        "Remove the limits that a command has set; the limits of scheduler.toml apply again",
        LIMITS,
        "corral quota unset {scope} {name}",
        7,
    ),
    _change(
        "new_reservation",
        "N",
        "reserve",
        "Reserve nodes for users or projects, or for maintenance",
        KEPT | WINDOW,
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
    ScreenAction("pulse", ("0", "p"), "pulse", "The state of the whole cluster"),
    ScreenAction("queue", ("1",), "queue", "All jobs", command="corral queue"),
    ScreenAction("nodes", ("2",), "nodes", "All nodes and their GPUs", command="corral nodes"),
    ScreenAction("events", ("3",), "events", "Events as they happen", command="corral events -f"),
    ScreenAction("shares", ("4",), "shares", "Fair shares and past usage", command="corral shares"),
    ScreenAction("quotas", ("5",), "quotas", "Quotas and their usage", command="corral quota"),
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
    ScreenAction("plan", ("8",), "plan", "When and where jobs are expected to run", command="corral plan"),
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
    ScreenAction("alarms", ("exclamation_mark",), "alarms", "All alarms; enter opens the job or the node"),
    ScreenAction(
        "copy",
        ("y",),
        "copy command",
        "Copy a shell command that does the same as an action of the view",
        footer=8,
    ),
    ScreenAction("presets", ("b",), "presets", "Show a preset: a view with its filter and columns"),
    ScreenAction("save_preset", ("m",), "save preset", "Save the view with its filter and columns", ROOTS),
    ScreenAction(
        "theme", ("t",), "theme", "Choose other colours, such as light, or safe for red-green blindness"
    ),
    ScreenAction(
        "palette", ("colon", "ctrl+p"), "menu", "All actions of this view; a number opens a job", footer=10
    ),
    ScreenAction("help", ("question_mark", "f1"), "help", "All keys of this view", footer=11),
    ScreenAction("quit", ("q", "ctrl+c"), "quit", "Quit; all jobs continue", footer=12),
)

ACTIONS: Final = (*LOOKING, *CHANGING, *MOVING, *PROGRAM)
BY_NAME: Final = {action.name: action for action in ACTIONS}

_SHOWN: Final = {
    "enter": "⏎",
    "space": "␣",
    "slash": "/",
    "colon": ":",
    "question_mark": "?",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "asterisk": "*",
    "ampersand": "&",
    "exclamation_mark": "!",
    "plus": "+",
    "minus": "-",
    "equals_sign": "=",
    "comma": ",",
    "full_stop": ".",
    "less_than_sign": "<",
    "greater_than_sign": ">",
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


def keys_of(action: ScreenAction, view: str) -> tuple[str, ...]:
    """Return the keys of an action in a view. If two actions of the view have the same key, the key belongs
    to the action that is available in fewer views.
    """
    rivals = [other for other in ACTIONS if other.in_view(view) and len(other.views) < len(action.views)]
    return tuple(key for key in action.keys if all(key not in other.keys for other in rivals))


def shown_key(key: str) -> str:
    return _SHOWN.get(key, key.replace("ctrl+", "^"))


def actions_of(view: str, read_only: bool) -> list[ScreenAction]:
    """Return the actions of a view. If `read_only` is true, leave out the actions that change the cluster."""
    return [action for action in ACTIONS if action.in_view(view) and not (read_only and action.changes)]


def footer_of(view: str, read_only: bool) -> list[ScreenAction]:
    shown = [action for action in actions_of(view, read_only) if action.footer]
    return sorted(shown, key=lambda action: action.footer)
