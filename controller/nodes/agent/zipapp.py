"""Packs the agent into one zip file that Python can run: the packages agent and wire, and the module pynvml.

The file name contains a digest, so a host needs a new file only if the sources have changed.
"""

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
    """The zip file that is sent to hosts. Equal sources give equal bytes and an equal file name."""

    name: str
    data: bytes
    digest: str
    bootstrap: str
    """The source text of the program that receives the bundle."""


@functools.cache
def bundle() -> Bundle:
    """Return the zip file with the agent program of this installation. The file is built at the first
    call."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in sorted({**_packages(), **_nvml(), "__main__.py": _MAIN}.items()):
            archive.writestr(zipfile.ZipInfo(name, _LONG_AGO), data, zipfile.ZIP_DEFLATED)
    data = made.getvalue()
    digest = hashlib.sha256(data).hexdigest()
    return Bundle(f"agent-{digest[:20]}.pyz", data, digest, _bootstrap_source())


def _bootstrap_source() -> str:
    """Return the source text of the program that receives the agent on a host.

    The text consists of two modules of this project, one after the other, so that the program is a single
    file.
    """
    names = ("wire/trusted_paths.py", "agent/host/bootstrap.py")
    checks, bootstrap = ((_HOME / name).read_text(encoding="utf-8") for name in names)
    lines = bootstrap.splitlines(keepends=True)
    # Leave out the __future__ import of the second module, and its import of names that the first module
    # defines. Both are unnecessary when the modules are one file.
    own = [line for line in lines if not line.startswith(("from __future__ ", "from wire."))]
    return checks + "".join(own)


_NOT_NEEDED = ("api", "http")
"""Packages in `wire` that are not sent to hosts, because only clients of the HTTP API use these packages."""


def _packages() -> dict[str, bytes]:
    return {
        str(path.relative_to(_HOME)): path.read_bytes()
        for package in ("agent", "wire")
        for path in (_HOME / package).rglob("*.py")
        if path.parent.name not in _NOT_NEEDED
    }


def _nvml() -> dict[str, bytes]:
    """Return {file name: source} of pynvml (NVIDIA's library to read GPUs), so that hosts need no installed
    pynvml. Return an empty dictionary if it is not installed here.
    """
    found = importlib.util.find_spec("pynvml")
    if found is None or not found.origin:
        return {}
    return {"pynvml.py": Path(found.origin).read_bytes()}
