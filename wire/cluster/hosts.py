"""The settings of a host: its SSH address and resources, as in scheduler.toml, the API and the journal."""

from __future__ import annotations

import re
from dataclasses import field
from typing import Callable, Mapping, Optional

from wire import gpudescription
from wire.dataclass import dataclass

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_MEMORY = re.compile(r"(\d{1,9})([MGT])(i?B)?")
_MIB = {"M": 1, "G": 1024, "T": 1024 * 1024}
_PATH = re.compile(r"[A-Za-z0-9/._+-]+")
_ADDRESS = re.compile(
    r"(?:(?P<user>[A-Za-z0-9_][A-Za-z0-9._-]{0,63})@)?"
    r"(?P<host>\[[0-9A-Fa-f:.%a-z]+\]|[A-Za-z0-9][A-Za-z0-9._-]{0,252})"
    r"(?::(?P<port>\d{1,5}))?"
)


@dataclass(frozen=True)
class HostSpec:
    """The settings of a host to which the controller connects by SSH. For an empty setting, the value in
    ~/.ssh/config, a value detected on the host, or a default is used.
    """

    ssh: str
    identity: str = ""
    python: str = ""
    spool: str = ""
    address: str = ""
    gpus: str = "auto"
    cpus: Optional[int] = None
    memory: Optional[str] = None
    labels: Mapping[str, str] = field(default_factory=dict)
    run_as_self: bool = False
    scratch: Optional[str] = None
    scratch_dir: str = ""


@dataclass(frozen=True)
class SshAddress:
    """An SSH address. If the user or the port is missing, the value in ~/.ssh/config is used. If that file
    has no value, the user of the controller and port 22 are used.
    """

    host: str
    user: str = ""
    port: int = 0

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.user}@" * bool(self.user) + host + f":{self.port}" * bool(self.port)

    def words(self) -> str:
        """Return the address as command-line arguments for ssh and ssh-copy-id."""
        return f"-p {self.port} " * bool(self.port) + f"{self.user}@" * bool(self.user) + self.host


def parse_ssh_address(text: str) -> SshAddress:
    """Parse a text of the form `[user@]host[:port]`. Raise ValueError for any other text."""
    match = _ADDRESS.fullmatch(text)
    if match is None or not 0 < int(match["port"] or 22) < 65_536:
        raise ValueError(
            f'cannot read {text!r} as an SSH address; write "gpu01", "user@gpu01" or "gpu01:2222"'
        )
    return SshAddress(match["host"].strip("[]"), match["user"] or "", int(match["port"] or 0))


def checked_node_name(name: str) -> str:
    """Return the name unchanged. Raise ValueError for an invalid node name."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not a name for a node: use letters, digits, '.', '_', '-', at most 63")
    return name


def checked_memory(text: str) -> str:
    """Return the text unchanged. Raise ValueError if the text is not an amount of memory."""
    match = _MEMORY.fullmatch(text)
    if match is None or not 0 < int(match[1]) * _MIB[match[2]] <= 1 << 30:
        raise ValueError(f'cannot read {text!r} as memory; write "512G", "2T" or "800M"')
    return text


def memory_mib(text: str) -> int:
    """Return the memory in MiB for a text such as 512G. Raise ValueError if the text is not an amount of
    memory.
    """
    match = _MEMORY.fullmatch(checked_memory(text))
    assert match is not None
    return int(match[1]) * _MIB[match[2]]


def checked_remote_path(text: str) -> str:
    """Return the path unchanged. Raise ValueError if the path has characters that a shell treats
    specially.
    """
    if text and not _PATH.fullmatch(text):
        raise ValueError(
            f"{text!r} has characters that a shell may treat specially; use letters, digits, / . _ + -"
        )
    return text


def host_problems(host: HostSpec) -> list[tuple[str, str]]:
    """Validate the settings of a host. Return each mistake as (field name, sentence for users)."""
    checks: list[tuple[str, Callable[[], object]]] = [
        ("ssh", lambda: parse_ssh_address(host.ssh)),
        ("python", lambda: checked_remote_path(host.python)),
        ("spool", lambda: _absolute(host.spool)),
        ("gpus", lambda: gpudescription.checked_description(host.gpus)),
        ("memory", lambda: checked_memory(host.memory or "1M")),
        ("cpus", lambda: _cpus(host.cpus)),
        ("scratch", lambda: checked_memory(host.scratch or "1M")),
        ("scratch_dir", lambda: _absolute(host.scratch_dir)),
        ("labels", lambda: _labels(host.labels)),
        ("identity", lambda: _short(host.identity)),
        ("address", lambda: _short(host.address)),
    ]
    found = []
    for where, look in checks:
        try:
            look()
        except ValueError as error:
            found.append((where, str(error)))
    return found


def _absolute(text: str) -> None:
    if text and (not text.startswith("/") or not text.isprintable() or len(text) > 1_000):
        raise ValueError(f"{text!r} is not an absolute path of printable characters")


def _cpus(count: Optional[int]) -> None:
    if count is not None and not 1 <= count <= 10_000:
        raise ValueError("must be from 1 to 10000")


def _labels(labels: Mapping[str, str]) -> None:
    strange = [key for key, text in labels.items() if not key or "=" in key or len(key) + len(text) > 500]
    if len(labels) > 100 or strange:
        raise ValueError("must be at most 100 labels KEY=VALUE of at most 500 characters")


def _short(text: str) -> None:
    if len(text) > 1_000 or not text.isprintable():
        raise ValueError("must be printable and at most 1000 characters")
