"""The agent as one file: agent, wire and pynvml in a zip that Python runs, named after what is in it."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import io
import zipfile
from dataclasses import dataclass
from pathlib import Path

_HOME = Path(__file__).absolute().parent.parent.parent
_LONG_AGO = (1980, 1, 1, 0, 0, 0)
_MAIN = b"import sys\nfrom agent.__main__ import main\nsys.exit(main())\n"


@dataclass(frozen=True, slots=True)
class Bundle:
    """What is pushed to a host. The same sources give the same bytes, and so the same name."""

    name: str
    data: bytes
    digest: str
    arrival: str
    """What takes it in there, as text."""


@functools.cache
def bundle() -> Bundle:
    """The bundle of this installation, made once."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in sorted({**_packages(), **_nvml(), "__main__.py": _MAIN}.items()):
            archive.writestr(zipfile.ZipInfo(name, _LONG_AGO), data, zipfile.ZIP_DEFLATED)
    data = made.getvalue()
    digest = hashlib.sha256(data).hexdigest()
    arrival = (_HOME / "agent" / "arrival.py").read_text(encoding="utf-8")
    return Bundle(f"agent-{digest[:20]}.pyz", data, digest, arrival)


def _packages() -> dict[str, bytes]:
    return {
        f"{package}/{path.name}": path.read_bytes()
        for package in ("agent", "wire")
        for path in (_HOME / package).glob("*.py")
    }


def _nvml() -> dict[str, bytes]:
    """NVIDIA's own Python binding is a single file without needs of its own; hosts need not have it."""
    found = importlib.util.find_spec("pynvml")
    if found is None or not found.origin:
        return {}
    return {"pynvml.py": Path(found.origin).read_bytes()}
