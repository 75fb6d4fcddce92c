"""An empty Debian for tests: copies of the essential packages of this machine, without Python."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp

ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8", "TERM": "xterm"}
EXTRA = ("passwd", "login", "libpam-runtime")
"""Packages of every Debian that are not essential. The Debian package of Corral needs useradd."""


def lacking() -> str:
    """What this machine lacks for an empty Debian; empty if nothing."""
    if os.geteuid() != 0:
        return "a root directory of its own needs root"
    return "" if shutil.which("dpkg-query") else "there is no dpkg here"


class BareRoot:
    """A directory that commands take for /."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._started: list[subprocess.Popen[bytes]] = []

    def command(self, *words: str, user: str = "root") -> list[str]:
        """The command to run in the directory."""
        return ["chroot", f"--userspec={user}", str(self.path), *words]

    def run(
        self, *words: str, check: bool = True, more: Mapping[str, str] | None = None, user: str = "root"
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in it to its end. Its stdin is empty."""
        done = subprocess.run(
            self.command(*words, user=user),
            env={**ENVIRONMENT, **(more or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert done.returncode == 0 or not check, (words, done)
        return done

    def start(self, *words: str, log: str, user: str = "root") -> subprocess.Popen[bytes]:
        """Start a command in it, in a session of its own."""
        with (self.path / log).open("ab") as file:
            process = subprocess.Popen(
                self.command(*words, user=user),
                env=ENVIRONMENT,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        self._started.append(process)
        return process

    def processes(self) -> list[int]:
        """All processes whose root is the directory."""
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and os.readlink(entry / "root") == str(self.path):
                    found.append(int(entry.name))
            except OSError:
                continue
        return found

    def end(self) -> None:
        """Kill every process in it, and take the mounts away."""
        while found := self.processes():
            for pid in found:
                try:
                    os.kill(pid, 9)
                except ProcessLookupError:
                    continue
            for process in self._started:
                process.poll()
        if os.path.ismount(self.path / "proc"):
            subprocess.run(["umount", "-l", str(self.path / "proc")], check=True)


@contextmanager
def bare_root() -> Iterator[BareRoot]:
    """Make one, and remove it at the end."""
    # Not in /tmp, because sshd refuses a ChrootDirectory below a directory that others may write to.
    root = BareRoot(Path(mkdtemp(prefix="corral-root-", dir="/var/lib")).resolve())
    root.path.chmod(0o755)
    try:
        _copy_packages(root.path)
        for name in ("proc", "dev", "run", "tmp", "root", "home"):
            (root.path / name).mkdir(exist_ok=True)
        (root.path / "tmp").chmod(0o1777)
        subprocess.run(["mount", "-t", "proc", "proc", str(root.path / "proc")], check=True)
        for name, minor in (("null", 3), ("zero", 5), ("random", 8), ("urandom", 9)):
            os.mknod(root.path / "dev" / name, 0o666 | stat.S_IFCHR, os.makedev(1, minor))
            (root.path / "dev" / name).chmod(0o666)
        assert root.run("python3", "--version", check=False).returncode == 127
        yield root
    finally:
        root.end()
        subprocess.run(["rm", "-rf", "--one-file-system", str(root.path)], check=True)


def _copy_packages(path: Path) -> None:
    """Copy the essential packages and what they depend on, and their entries in dpkg's database."""
    shown = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Package}\t${Essential}\t${Pre-Depends}, ${Depends}\t${Provides}\n"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    needs: dict[str, list[str]] = {}
    providers: dict[str, str] = {}
    wanted = list(EXTRA)
    for line in shown.splitlines():
        name, essential, depends, provides = line.split("\t")
        needs[name] = [each.split("|")[0].split("(")[0].split(":")[0].strip() for each in depends.split(",")]
        for each in provides.split(","):
            providers.setdefault(each.split("(")[0].strip(), name)
        if essential == "yes":
            wanted.append(name)
    chosen: set[str] = set()
    while wanted:
        name = wanted.pop()
        name = name if name in needs else providers.get(name, "")
        if name and name not in chosen:
            chosen.add(name)
            wanted += needs[name]
    files = subprocess.run(["dpkg", "-L", *chosen], check=True, capture_output=True, text=True).stdout
    links = ("/usr/bin/awk", "/etc/alternatives/awk")
    more = (
        "/etc/passwd",
        "/etc/group",
        "/etc/shadow",
        "/etc/gshadow",
        "/etc/nsswitch.conf",
        "/etc/ld.so.cache",
    )
    names = sorted({file for file in [*links, *files.splitlines(), *more] if os.path.lexists(file)})
    kept = [name for name in names if "/share/doc/" not in name and "/share/locale/" not in name]
    listed = path / "files"
    listed.write_text(
        "".join(f"{name}\n" for name in kept if name not in ("/.", "/bin", "/sbin", "/lib", "/lib64"))
    )
    for name in ("bin", "sbin", "lib", "lib64"):
        # because these are links to directories in /usr, and come first in the archive
        (path / "usr" / name).mkdir(parents=True)
        (path / name).symlink_to(f"usr/{name}")
    archive = path / "files.tar"
    subprocess.run(["tar", "-cPf", str(archive), "--no-recursion", "-T", str(listed)], check=True)
    subprocess.run(["tar", "-xf", str(archive), "-C", str(path)], check=True)
    listed.unlink()
    archive.unlink()
    database = path / "var/lib/dpkg"
    (database / "info").mkdir(parents=True, exist_ok=True)
    (database / "updates").mkdir(exist_ok=True)
    entries = Path("/var/lib/dpkg/status").read_text(encoding="utf-8").split("\n\n")
    own = [each for each in entries if each.partition("\n")[0].removeprefix("Package: ") in chosen]
    (database / "status").write_text("".join(f"{each.strip()}\n\n" for each in own), encoding="utf-8")
    (database / "available").touch()
