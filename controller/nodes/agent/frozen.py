"""The agent for hosts without Python: a program in one file. Only a frozen Corral (one file with its own
Python, made by `make binary`) contains this program."""

from __future__ import annotations

import functools
import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from wire.program_parts import is_frozen

COMMAND = """exec /bin/sh -c 'read -r size; eval "$(head -c "$size")"'"""
"""The shell command that runs a script from stdin. The first line of stdin is the size of the script in
bytes. The command has no single quotes inside its single quotes, so every login shell reads it in the same
way.
"""
_END = "# --- end of functions ---\n"
_RECEIVE = Path(__file__).with_name("receive_agent.sh")


@dataclass(frozen=True, slots=True)
class FrozenAgent:
    """The contents of the file corral-agent: the shell functions at its beginning
    (deploy/binary/launcher.sh), and the archive that these functions unpack."""

    functions: str
    data: bytes

    def script(self, word: list[str], home: str) -> bytes:
        """Return the script to send to the stdin of COMMAND. `home` is the directory of the agent on the
        host; if empty, the script uses the default directory.

        `word` has the two parts of a random word with which answers begin. The script contains the parts
        separately, so that an echo of the script by a terminal does not look like an answer.
        """
        values = f"WORD={word[0]}''{word[1]}\nHOME_DIRECTORY={shlex.quote(home)}\n"
        text = f"{self.functions}{values}{_RECEIVE.read_text(encoding='utf-8')}".encode()
        return b"%d\n%s" % (len(text), text)


@functools.cache
def frozen_agent() -> FrozenAgent | None:
    """Return the agent that this program contains; None if this program is not frozen (not one file with its
    own Python)."""
    file = Path(sys.executable).parent / "_internal" / "corral-agent"
    return read_frozen_agent(file) if is_frozen() and file.exists() else None


def read_frozen_agent(file: Path) -> FrozenAgent:
    """Read the file corral-agent, which `make binary` has made."""
    content = file.read_bytes()
    functions = content.partition(_END.encode())[0].decode()
    size = re.search(r"\bBYTES=(\d+)", functions)
    assert size is not None
    return FrozenAgent(functions, content[-int(size[1]) :])
