"""Builds the program corral as one file, which contains a Python: `make binary`.

1. PyInstaller collects corral-agent and corral, each as a directory with all modules and libraries.
2. Each directory becomes one file: the script launcher.sh, followed by the directory as a compressed archive.
   The file of corral-agent is put into the directory of corral, which sends it to hosts without Python.
3. Each library requires at least some version of glibc. The newest of these versions is the oldest glibc with
   which a host can run the program.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import platform
import re
import subprocess
import sys
import tarfile
from pathlib import Path

from wire import VERSION

HERE = Path(__file__).absolute().parent
HOME = HERE.parents[1]

_PLACEHOLDER = re.compile(r"@([A-Z]+)@")
_GLIBC = re.compile(rb"GLIBC_2\.(\d+)\0")


def main() -> None:
    """Build dist/corral, and keep the directory build/binary/corral for the Debian package."""
    work = HOME / "build" / "binary"
    subprocess.run(
        [
            *(sys.executable, "-m", "PyInstaller", "--noconfirm", "--log-level=WARN"),
            *(f"--distpath={work}", f"--workpath={work}/work", str(HERE / "corral.spec")),
        ],
        check=True,
        cwd=HOME,
    )
    corral = work / "corral"
    # Strip only libpython, because strip damages libraries that patchelf has changed.
    for library in work.glob("*/_internal/libpython*"):
        subprocess.run(["strip", "--strip-unneeded", str(library)], check=True)
    for file in corral.glob("_internal/*.dist-info/direct_url.json"):
        file.unlink()  # Delete the file, because it names a directory of the build machine.
    pack(work / "corral-agent", corral / "_internal" / "corral-agent")
    made = HOME / "dist" / "corral"
    made.parent.mkdir(exist_ok=True)
    pack(corral, made)
    size = made.stat().st_size / 1e6
    print(f"{made.relative_to(HOME)}: {size:.0f} MB, needs glibc 2.{oldest_glibc(corral)} or newer")


def pack(folder: Path, made: Path) -> None:
    """Write the directory as one program that unpacks itself."""
    archive = io.BytesIO()
    # Write an archive that depends only on the files and not on the time. A second build of the same version
    # then uses the same directory on a host.
    with (
        gzip.GzipFile(fileobj=archive, mode="wb", mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as tar,
    ):
        for path in sorted(folder.rglob("*")):
            tar.add(path, str(path.relative_to(folder)), recursive=False, filter=_anonymous)
    data = archive.getvalue()
    size = sum(path.lstat().st_size for path in folder.rglob("*"))
    values = {
        "PROGRAM": folder.name,
        "VERSION": VERSION,
        "DIGEST": hashlib.sha256(data).hexdigest(),
        "BYTES": str(len(data)),
        "MIB": str((size >> 20) + 1),
        "MACHINE": platform.machine(),
    }
    script = _PLACEHOLDER.sub(
        lambda found: values[found[1]], (HERE / "launcher.sh").read_text(encoding="utf-8")
    )
    made.write_bytes(script.encode() + data)
    made.chmod(0o755)


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.mtime = entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def oldest_glibc(folder: Path) -> int:
    """Return the minor version of the newest glibc that the libraries in the directory need: 28 for glibc
    2.28.
    """
    libraries = (path for path in folder.rglob("*") if path.is_file() and path.read_bytes()[:4] == b"\x7fELF")
    return max(int(number) for path in libraries for number in _GLIBC.findall(path.read_bytes()))


if __name__ == "__main__":
    main()
