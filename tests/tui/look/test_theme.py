"""Every theme has a style for every part, and can be read."""

from __future__ import annotations

import itertools

import pytest
from rich.color import Color as Rich
from rich.color import ColorSystem
from rich.segment import Segment
from rich.style import Style
from textual.color import Color

from tui.look import glyphs, theme
from tui.look.ascii import AsciiOnly, ascii_only
from tui.look.theme import DUSK, HORIZON, SIXTEEN, THEMES, CorralTheme
from wire.names import JobState

COLOURED = [look for look in THEMES.values() if look is not SIXTEEN]
STATES = [state.value.lower() for state in JobState]


@pytest.mark.parametrize("look", THEMES.values(), ids=lambda look: look.colours.name)
def test_every_theme_styles_the_same_parts(look: CorralTheme) -> None:
    assert theme.styles(look).keys() == theme.styles(DUSK).keys()


def _luminance(colour: Color) -> float:
    parts = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in colour.normalized
    ]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def contrast(one: Color, other: Color) -> float:
    """Return the contrast ratio of the WCAG guidelines: 1 for equal colours, 21 for black on white."""
    high, low = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def _colour(style: Style) -> Color:
    assert style.color is not None
    return Color.from_rich_color(style.color)


@pytest.mark.parametrize("look", COLOURED, ids=lambda look: look.colours.name)
def test_text_has_enough_contrast_in_every_theme(look: CorralTheme) -> None:
    styles = theme.styles(look)
    grounds = [look.colours.background, look.colours.surface, look.colours.variables["cursor"]]
    for part, ground in itertools.product(
        (*STATES, "text", "strong", "warn", "bad", "good", "held"), grounds
    ):
        assert contrast(_colour(styles[part]), Color.parse(ground or "")) >= 3, (part, ground)
    for part in ("text", "strong", "muted", "running", "failed"):
        assert contrast(_colour(styles[part]), Color.parse(look.colours.background or "")) >= 4.5, part


@pytest.mark.parametrize("look", COLOURED, ids=lambda look: look.colours.name)
def test_backgrounds_differ_on_256_colours(look: CorralTheme) -> None:
    grounds = (look.colours.background, look.colours.surface, look.colours.variables["cursor"])
    reduced = [Rich.parse(ground or "").downgrade(ColorSystem.EIGHT_BIT).number for ground in grounds]
    assert len(set(reduced)) == len(reduced)


def _as_deutan(colour: Color) -> tuple[float, float, float]:
    """Return the colour as people with deuteranopia see it (Viénot, Brettel and Mollon 1999), in linear
    light.
    """
    red, green, blue = (part**2.2 for part in colour.normalized)
    mixed = 0.29275 * red + 0.70725 * green
    return mixed, mixed, -0.02234 * red + 0.02234 * green + blue


@pytest.mark.parametrize(
    ("one", "other"), [*itertools.combinations(("running", "queued", "failed", "preempted"), 2)]
)
def test_states_differ_for_red_green_blind_users(one: str, other: str) -> None:
    styles = theme.styles(HORIZON)
    seen = [_as_deutan(_colour(styles[part])) for part in (one, other)]
    assert sum(abs(a - b) for a, b in zip(*seen, strict=True)) > 0.2


def test_states_differ_by_shape_also_in_ascii() -> None:
    signs = [*glyphs.JOB.values(), glyphs.HELD]
    assert len(set(signs)) == len(signs)
    assert len({glyphs.ASCII[ord(sign)] for sign in signs}) == len(signs)
    assert len({glyphs.ASCII[ord(sign)] for sign in glyphs.GPU.values()}) == len(glyphs.GPU)
    assert len({glyphs.ASCII[ord(sign)] for sign in glyphs.NODE.values()}) == len(glyphs.NODE)


def test_ascii_mode_keeps_the_width_of_replaced_characters() -> None:
    line = [Segment("● 学習-é│", Style())]
    assert AsciiOnly().apply(line, Color(0, 0, 0)) == [Segment("* ????-?|", Style())]


@pytest.mark.parametrize(
    ("environment", "colours", "chosen"),
    [
        ({}, "truecolor", "dusk"),
        ({}, "256", "dusk"),
        ({}, "standard", "terminal"),
        ({}, None, "terminal"),
        ({"NO_COLOR": ""}, "truecolor", "terminal"),
        ({"NO_COLOR": "1", "CORRAL_THEME": "dusk"}, "truecolor", "terminal"),
        ({"CORRAL_THEME": "horizon"}, "truecolor", "horizon"),
        ({"CORRAL_THEME": "nonsense"}, "truecolor", "dusk"),
        ({"COLORFGBG": "0;15"}, "truecolor", "dawn"),
        ({"COLORFGBG": "15;0"}, "truecolor", "dusk"),
    ],
)
def test_theme_matches_the_capability_of_the_terminal(
    environment: dict[str, str], colours: str | None, chosen: str
) -> None:
    assert theme.choose(environment, colours) == chosen


def test_saved_theme_is_used_unless_another_is_requested() -> None:
    assert theme.choose({}, "truecolor", "horizon") == "horizon"
    assert theme.choose({"CORRAL_THEME": "dawn"}, "truecolor", "horizon") == "dawn"
    assert theme.choose({}, "standard", "horizon") == "terminal"


def test_ascii_mode_is_used_on_request_and_on_the_console(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("locale.getpreferredencoding", lambda _: "UTF-8")
    assert not ascii_only({"TERM": "xterm-256color"})
    assert ascii_only({"TERM": "linux"})
    assert ascii_only({"CORRAL_ASCII": "1"})
    monkeypatch.setattr("locale.getpreferredencoding", lambda _: "ANSI_X3.4-1968")
    assert ascii_only({})
