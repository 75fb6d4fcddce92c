"""PNG images of the plan, drawn by a real renderer of this host."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest

from cli.exit_codes import CommandError
from cli.output.pictures.plan_chart import plan_svg
from cli.output.pictures.png import _renderers, _size, png_of
from tests.cli.commands.test_plan import example

NO_RENDERER = next((None for name in _renderers() if shutil.which(name)), ", ".join(_renderers()))


@pytest.mark.skipif(NO_RENDERER is not None, reason=f"none of these programs is here: {NO_RENDERER}")
def test_png_has_the_size_of_the_svg_image() -> None:
    svg = plan_svg(example())
    png = png_of(svg)
    assert png.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", png[16:24])
    assert abs(width - _size(svg)[0]) <= 1
    assert abs(height - _size(svg)[1]) <= 1


def test_host_without_a_renderer_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CommandError) as refused:
        png_of(plan_svg(example()))
    assert "no program that draws PNG images is on this host: looked for rsvg-convert" in str(refused.value)


def test_error_of_a_renderer_is_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "rsvg-convert"
    broken.write_text("#!/bin/sh\necho out of colours >&2\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(CommandError, match="out of colours"):
        png_of(plan_svg(example()))
