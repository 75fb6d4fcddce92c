"""The themes. Widgets use names of styles (`running`, `muted`, `accent`); only themes contain colours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rich.style import Style
from textual.theme import BUILTIN_THEMES
from textual.theme import Theme as Colours

from tui.look.graphs import HEATS


@dataclass(frozen=True)
class CorralTheme:
    """A theme: the colours of Textual's own widgets, and the style for each style name."""

    title: str
    colours: Colours
    parts: Mapping[str, str]


_USERS: Final = (
    "running",
    "queued",
    "preempted",
    "scheduled",
    "held",
    "completed",
    "cancelled",
    "running",
)
"""The styles `user-0` to `user-7`, for the bars of different users, have the colours of these job states."""


def _parts(ground: Mapping[str, str], states: Mapping[str, str]) -> dict[str, str]:
    """Return the style for each style name. `ground` has the colours of backgrounds and texts, `states` the
    colours of job states.

    Nodes, GPUs and messages use the same colours as job states with the same meaning: good, warning, bad.
    """
    accent, good, bad = ground["accent"], states["running"], states["failed"]
    return {
        "text": ground["text"],
        "strong": f"bold {ground['strong']}",
        "muted": ground["muted"],
        "faint": ground["faint"],
        "accent": accent,
        "brand": f"bold {accent}",
        "head": ground["muted"],
        "sorted": f"bold {accent}",
        "key": f"bold {accent}",
        "mark": f"bold {accent}",
        "cursor": f"on {ground['cursor']}",
        "cursor-away": f"on {ground['panel']}",
        "failed-row": ground["failed-row"],
        "late-row": ground["late-row"],
        "edge": accent,
        "bar": accent,
        "track": ground["track"],
        "line": ground["line"],
        "tab": f"bold {ground['strong']}",
        **states,
        "up": good,
        "drained": accent,
        "suspect": accent,
        "down": bad,
        "busy": good,
        "share": states["scheduled"],
        "free": ground["faint"],
        "sick": bad,
        "good": good,
        "warn": accent,
        "bad": bad,
        "picked": f"bold {ground['strong']}",
        **{f"user-{number}": states[state] for number, state in enumerate(_USERS)},
    }


def _heats(*stops: str) -> dict[str, str]:
    """Return the styles `heat-0` to `heat-15`. Their colours change in equal steps from the first to the last
    of the colours `stops`, which are given as #rrggbb.
    """
    colours = [[int(stop[at : at + 2], 16) for at in (1, 3, 5)] for stop in stops]
    styles = {}
    for number in range(HEATS):
        place = number / (HEATS - 1) * (len(colours) - 1)
        low = min(int(place), len(colours) - 2)
        mixed = (
            round(one + (other - one) * (place - low))
            for one, other in zip(colours[low], colours[low + 1], strict=True)
        )
        styles[f"heat-{number}"] = "#" + "".join(f"{part:02x}" for part in mixed)
    return styles


def _look(
    title: str,
    name: str,
    ground: Mapping[str, str],
    states: Mapping[str, str],
    heats: tuple[str, ...],
    *,
    dark: bool = True,
) -> CorralTheme:
    parts = {**_parts(ground, states), **_heats(*heats)}
    colours = Colours(
        name=name,
        dark=dark,
        primary=ground["accent"],
        secondary=ground["muted"],
        accent=ground["accent"],
        warning=parts["warn"],
        error=parts["bad"].split()[-1],
        success=parts["good"],
        foreground=ground["text"],
        background=ground["background"],
        surface=ground["surface"],
        panel=ground["panel"],
        variables={
            "line": ground["line"],
            "muted": ground["muted"],
            "faint": ground["faint"],
            "cursor": ground["cursor"],
            "border": ground["line"],
            "border-blurred": ground["line"],
            "block-cursor-background": ground["cursor"],
            "block-cursor-foreground": ground["strong"],
            "block-cursor-text-style": "none",
            "input-cursor-background": ground["accent"],
            "input-cursor-foreground": ground["background"],
            "input-selection-background": ground["cursor"],
            "scrollbar": ground["line"],
            "scrollbar-hover": ground["muted"],
            "scrollbar-active": ground["accent"],
            "scrollbar-background": ground["background"],
            "scrollbar-background-hover": ground["background"],
            "scrollbar-background-active": ground["background"],
            "scrollbar-corner-color": ground["background"],
        },
    )
    return CorralTheme(title, colours, parts)


# Use background colours that are almost grey, because a terminal with 256 colours shows all other dark
# colours as black.
_DARK: Final = {
    "background": "#14161a",
    "surface": "#1a1d22",
    "panel": "#22262c",
    "line": "#343943",
    "track": "#474d59",
    "cursor": "#2d323b",
    "failed-row": "on #2a1a1c",
    "late-row": "on #292318",
}

DUSK = _look(
    "Dusk",
    "dusk",
    {
        **_DARK,
        "text": "#c5ccd8",
        "strong": "#eef2f8",
        "muted": "#8791a1",
        "faint": "#596374",
        "accent": "#e2b36c",
    },
    {
        "queued": "#8fabdb",
        "scheduled": "#6fc6d6",
        "running": "#84cfa4",
        "preempted": "#bda0e8",
        "completed": "#6f9a83",
        "failed": "bold #ee8a80",
        "cancelled": "#7d8796",
        "held": "#d6a2c8",
    },
    ("#4a6fa5", "#4f9d8f", "#84cfa4", "#e2c16c", "#e8836f"),
)

DAWN = _look(
    "Dawn (light)",
    "dawn",
    {
        "background": "#fbf9f5",
        "surface": "#f3efe8",
        "panel": "#eae4d9",
        "line": "#d8d0c2",
        "track": "#c9bfad",
        "cursor": "#e6dcc8",
        "failed-row": "on #f8e4e0",
        "late-row": "on #f7ecd2",
        "text": "#333943",
        "strong": "#14181f",
        "muted": "#68707d",
        "faint": "#98a0ab",
        "accent": "#935c0b",
    },
    {
        "queued": "#38599b",
        "scheduled": "#136f80",
        "running": "#1c7445",
        "preempted": "#6d45a8",
        "completed": "#4f7a63",
        "failed": "bold #ae2f26",
        "cancelled": "#757d89",
        "held": "#8e3f7c",
    },
    ("#5b7db8", "#3f8f86", "#3d8a56", "#a8790f", "#b0432f"),
    dark=False,
)

# Use blue and orange, because people with red-green blindness can distinguish them; the other colours also
# differ in lightness.
HORIZON = _look(
    "Horizon (red-green safe)",
    "horizon",
    {
        **_DARK,
        "failed-row": "on #2b2013",
        "late-row": "on #28280f",
        "text": "#c9cfd9",
        "strong": "#f1f4f9",
        "muted": "#8b94a3",
        "faint": "#5d6676",
        "accent": "#f0e442",
    },
    {
        "queued": "#c9cfd9",
        "scheduled": "#9ad4f5",
        "running": "#56b4e9",
        "preempted": "#cc79a7",
        "completed": "#5b90b5",
        "failed": "bold #f28e2b",
        "cancelled": "#7f8796",
        "held": "#cc79a7",
    },
    ("#2f5d8a", "#56b4e9", "#c9cfd9", "#f0c987", "#f28e2b"),
)

SIXTEEN = CorralTheme(
    "Terminal (16 colours)",
    Colours(
        name="terminal",
        ansi=True,
        primary="ansi_yellow",
        secondary="ansi_cyan",
        warning="ansi_yellow",
        error="ansi_red",
        success="ansi_green",
        accent="ansi_yellow",
        foreground="ansi_default",
        background="ansi_default",
        surface="ansi_default",
        panel="ansi_default",
        boost="ansi_default",
        variables={
            **BUILTIN_THEMES["ansi-dark"].variables,
            "line": "ansi_default",
            "muted": "ansi_default",
            "faint": "ansi_default",
            "cursor": "ansi_default",
            "border": "ansi_default",
            "border-blurred": "ansi_default",
            "block-cursor-background": "ansi_default",
            "block-cursor-foreground": "ansi_default",
            "block-cursor-text-style": "reverse",
            "scrollbar": "ansi_default",
            "scrollbar-hover": "ansi_default",
            "scrollbar-active": "ansi_default",
            "scrollbar-background": "ansi_default",
            "scrollbar-background-hover": "ansi_default",
            "scrollbar-background-active": "ansi_default",
        },
    ),
    {
        **_parts(
            {
                **dict.fromkeys(("text", "strong", "cursor", "panel"), "default"),
                **dict.fromkeys(("muted", "faint", "track", "line"), "dim"),
                "accent": "yellow",
                **dict.fromkeys(("failed-row", "late-row"), "default"),
            },
            {
                "queued": "cyan",
                "scheduled": "bright_cyan",
                "running": "green",
                "preempted": "magenta",
                "completed": "green",
                "failed": "bold red",
                "cancelled": "dim",
                "held": "magenta",
            },
        ),
        # Use attributes such as bold instead of colours, because the terminal's background colour is unknown.
        "strong": "bold",
        "tab": "bold",
        "cursor": "reverse",
        "cursor-away": "underline",
        "share": "cyan",
        **{
            f"heat-{number}": ("blue", "cyan", "green", "yellow", "red")[number * 5 // HEATS]
            for number in range(HEATS)
        },
    },
)

THEMES: Final = {look.colours.name: look for look in (DUSK, HORIZON, DAWN, SIXTEEN)}


def choose(environment: Mapping[str, str], colours: str | None, saved: str = "") -> str:
    """Return the name of the theme for the start: the theme in the environment variable CORRAL_THEME,
    otherwise the theme of the last start (`saved`). If there is no such theme, or if the terminal cannot show
    the colours of the theme, return a theme that suits the terminal.

    `colours` names the colours of the terminal as the library rich does: "standard" is 16 colours, None is no
    colours.
    """
    wanted = environment.get("CORRAL_THEME") or saved
    if "NO_COLOR" in environment or colours in (None, "standard"):
        return SIXTEEN.colours.name
    if wanted in THEMES:
        return wanted
    # Some terminals, such as rxvt, set COLORFGBG. Its last number is the background colour; 7 and 15 are
    # white.
    light = environment.get("COLORFGBG", "").rpartition(";")[2] in ("7", "15")
    return DAWN.colours.name if light else DUSK.colours.name


def styles(look: CorralTheme) -> dict[str, Style]:
    return {part: Style.parse(style) for part, style in look.parts.items()}
