"""What holds for all tests."""

from __future__ import annotations

import os

from hypothesis import settings

# The same examples everywhere: a change is judged by what it changes. CORRAL_EXAMPLES=search looks further.
settings.register_profile("steady", derandomize=True)
settings.register_profile("search", print_blob=True)
settings.load_profile(os.environ.get("CORRAL_EXAMPLES", "steady"))
