"""Converts an SVG image to a PNG image with a program of the host, because Corral contains no renderer."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from cli.exit_codes import FAILED, CommandError

RENDER_S: Final = 60.0
"""Seconds within which a renderer must finish."""
CHROMIUM: Final = ("chromium", "chromium-browser", "google-chrome")
INSTALL: Final = (
    "Install one of them, such as 'apt-get install librsvg2-bin' for rsvg-convert. Or write the plan as svg "
    "or html."
)


def png_of(svg: str) -> bytes:
    """Return the SVG image as a PNG image of the same size. Raise CommandError if this host has no renderer,
    or if the renderer fails.

    The first installed renderer in this order is used: rsvg-convert, resvg, inkscape, and Chromium without a
    window.
    """
    found = next(
        ((path, words) for name, words in _renderers().items() if (path := shutil.which(name))), None
    )
    if found is None:
        names = ", ".join(_renderers())
        raise CommandError(
            f"no program that draws PNG images is on this host: looked for {names}", INSTALL, FAILED
        )
    program, words = found
    with tempfile.TemporaryDirectory(prefix="corral-plan-") as directory:
        source, target = Path(directory, "plan.svg"), Path(directory, "plan.png")
        source.write_text(svg, encoding="utf-8")
        try:
            done = subprocess.run(
                [program, *words(source, target, svg)], capture_output=True, timeout=RENDER_S, check=False
            )
            if done.returncode == 0 and target.exists():
                return target.read_bytes()
            why = done.stderr.decode("utf-8", "replace").strip()[-200:] or f"exit code {done.returncode}"
        except (OSError, subprocess.TimeoutExpired) as error:
            why = str(error)
    raise CommandError(
        f"{program} could not draw the PNG image: {why}", "Write the plan as svg or html.", FAILED
    )


def _renderers() -> dict[str, Callable[[Path, Path, str], list[str]]]:
    """Return the renderers by the name of their program. Each value returns the arguments of the program, for
    the SVG file, the PNG file and the text of the SVG image.
    """
    return {
        "rsvg-convert": lambda svg, png, _: [str(svg), "-o", str(png)],
        "resvg": lambda svg, png, _: [str(svg), str(png)],
        "inkscape": lambda svg, png, _: [str(svg), f"--export-filename={png}"],
        **dict.fromkeys(CHROMIUM, _chromium),
    }


def _chromium(svg: Path, png: Path, text: str) -> list[str]:
    width, height = _size(text)
    words = [
        "--headless",
        "--disable-gpu",
        "--hide-scrollbars",
        f"--user-data-dir={svg.parent / 'profile'}",
        f"--window-size={width},{height}",
        f"--screenshot={png}",
    ]
    # Turn off the sandbox if this process runs as root, because Chromium otherwise refuses to run. The image
    # is harmless: it has no script, and its texts are escaped.
    return [*words, *(["--no-sandbox"] if os.geteuid() == 0 else []), svg.as_uri()]


def _size(svg: str) -> tuple[int, int]:
    """Return the width and the height of an SVG image, from its viewBox."""
    box = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)
    assert box is not None  # plan_svg writes a viewBox.
    return int(float(box[1])) + 1, int(float(box[2])) + 1
