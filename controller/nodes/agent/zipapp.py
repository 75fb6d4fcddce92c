"""Packs the agent as one file: agent, wire and pynvml in a zip that Python runs, named by its digest."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import io
import zipfile
from dataclasses import dataclass
from pathlib import Path

_HOME = Path(__file__).absolute().parents[3]
_LONG_AGO = (1980, 1, 1, 0, 0, 0)
_MAIN = b"import sys\nfrom agent.__main__ import main\nsys.exit(main())\n"


@dataclass(frozen=True, slots=True)
class Bundle:
    """The file that is sent to hosts. The same sources give the same bytes and the same name."""

    name: str
    data: bytes
    digest: str
    arrival: str
    """The source text of the program that receives the bundle."""


@functools.cache
def bundle() -> Bundle:
    """The bundle of this installation; built once."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in sorted({**_packages(), **_nvml(), "__main__.py": _MAIN}.items()):
            archive.writestr(zipfile.ZipInfo(name, _LONG_AGO), data, zipfile.ZIP_DEFLATED)
    data = made.getvalue()
    digest = hashlib.sha256(data).hexdigest()
    return Bundle(f"agent-{digest[:20]}.pyz", data, digest, _arrival())


def _arrival() -> str:
    """The source text of the receiving program: two modules, one after the other, without imports of ours."""
    names = ("wire/trusted_paths.py", "agent/host/bootstrap.py")
    checks, arrival = ((_HOME / name).read_text(encoding="utf-8") for name in names)
    lines = arrival.splitlines(keepends=True)
    # Because the first text has said it for both, and because the names are there already.
    own = [line for line in lines if not line.startswith(("from __future__ ", "from wire."))]
    return checks + "".join(own)


_NOT_NEEDED = ("api", "http")
"""Packages of wire that only clients of the HTTP API use."""


def _packages() -> dict[str, bytes]:
    return {
        str(path.relative_to(_HOME)): path.read_bytes()
        for package in ("agent", "wire")
        for path in (_HOME / package).rglob("*.py")
        if path.parent.name not in _NOT_NEEDED
    }


def _nvml() -> dict[str, bytes]:
    """NVIDIA's Python binding: a single file without dependencies, so that hosts need not have it."""
    found = importlib.util.find_spec("pynvml")
    if found is None or not found.origin:
        return {}
    return {"pynvml.py": Path(found.origin).read_bytes()}
