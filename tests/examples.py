"""How many examples a property test tries. Every run tries the same ones, so that a failure comes from the
change; CORRAL_EXAMPLES=search tries others, and more of them.
"""

from __future__ import annotations

import os

SEARCH = os.environ.get("CORRAL_EXAMPLES") == "search"


def examples(of_a_search: int) -> int:
    """Return the number of examples: this number in a search, and a fifth of it in all other runs."""
    return of_a_search if SEARCH else max(5, of_a_search // 5)
