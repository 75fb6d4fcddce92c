"""Names the file that counts the steps of a job."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Mapping

ALLOCATION_VARIABLE = "CORRAL_ALLOCATION"
"""A random text in the environments of an allocation's job and of the command of salloc. Only the user can
read it.
"""


def counter_file(environment: Mapping[str, str]) -> str:
    """Return the path of the file. Its name comes from the mark of the attempt, because job ids are the same
    on different clusters.
    """
    mark = environment.get("CORRAL_MARK") or environment.get(ALLOCATION_VARIABLE, "")
    name = hashlib.sha256(f"{os.getuid()} {mark}".encode()).hexdigest()[:24]
    return os.path.join(tempfile.gettempdir(), f"corral-steps-{name}")
