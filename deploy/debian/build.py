"""Builds the Debian package from build/binary/corral, which `make binary` has left: `make deb`.

The program lies in /usr/lib/corral/VERSION-DIGEST, so that an upgrade replaces no file that processes of
running jobs still use.
"""

from __future__ import annotations

import hashlib
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from deploy.binary.build import oldest_glibc
from wire import VERSION

HERE = Path(__file__).absolute().parent
HOME = HERE.parents[1]
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
CONTROL = """\
Package: corral
Version: {version}
Architecture: {architecture}
Maintainer: The Corral authors <corral@localhost>
Section: admin
Priority: optional
Depends: libc6 (>= 2.{glibc}), passwd
Installed-Size: {kib}
Description: GPU cluster scheduler
 Controller, command line and terminal UI of Corral, with their own Python.
 Hosts with GPUs need no package, because the controller sends its agent to
 them by SSH.
"""


def build(folder: Path, program: Path, version: str = VERSION) -> Path:
    """Build the package in the directory `folder` from the directory `program`, and return its file."""
    architecture = ARCHITECTURES[platform.machine()]
    with TemporaryDirectory() as name:
        stage = Path(name)
        stage.chmod(0o755)
        directory = f"{version}-{_digest(program)}"
        shutil.copytree(program, stage / "usr/lib/corral" / directory)
        _link(stage / "usr/bin/corral", f"../lib/corral/{directory}/corral")
        _copy(HOME / "deploy/systemd/corral-controller.service", stage / "lib/systemd/system")
        for source in (HOME / "deploy/systemd/local-jobs.conf", HOME / "scheduler.toml", HOME / "README.md"):
            _copy(source, stage / "usr/share/doc/corral")
        _copy(HOME / "LICENSE", stage / "usr/share/doc/corral/copyright")
        _copy(HERE / "scheduler.toml", stage / "etc/corral")
        kib = sum(path.lstat().st_size for path in stage.rglob("*")) >> 10
        control = stage / "DEBIAN"
        control.mkdir()
        values = {
            "version": version,
            "architecture": architecture,
            "glibc": oldest_glibc(program),
            "kib": kib,
        }
        (control / "control").write_text(CONTROL.format(**values))
        (control / "conffiles").write_text("/etc/corral/scheduler.toml\n")
        for script in ("preinst", "postinst", "prerm", "postrm"):
            text = (HERE / script).read_text(encoding="utf-8")
            (control / script).write_text(text.replace("@DIRECTORY@", directory))
            (control / script).chmod(0o755)
        made = folder / f"corral_{version}_{architecture}.deb"
        subprocess.run(
            ["dpkg-deb", "--root-owner-group", "-Zzstd", "-z6", "--build", str(stage), str(made)],
            check=True,
            stdout=subprocess.DEVNULL,
        )
    return made


def _digest(program: Path) -> str:
    total = hashlib.sha256()
    for path in sorted(program.rglob("*")):
        if path.is_file():
            total.update(path.read_bytes())
    return total.hexdigest()[:8]


def _copy(source: Path, target: Path) -> None:
    named = target if target.name == "copyright" else target / source.name
    named.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, named)
    named.chmod(0o644)


def _link(path: Path, target: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)


if __name__ == "__main__":
    program = HOME / "build" / "binary" / "corral"
    if not program.exists():
        sys.exit("build/binary/corral is missing: run 'make binary' first")
    made = build(HOME / "dist", program)
    print(f"{made.relative_to(HOME)}: {made.stat().st_size / 1e6:.0f} MB")
