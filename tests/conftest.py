"""What holds for all tests."""

from __future__ import annotations

import os

from hypothesis import settings
from hypothesis.internal.conjecture import providers

# The same examples everywhere: a change is judged by what it changes. CORRAL_EXAMPLES=search looks further.
# And no time to keep: a busy machine is slower than a quiet one.
settings.register_profile("steady", derandomize=True, deadline=None)
settings.register_profile("search", print_blob=True, deadline=None)
EXAMPLES = os.environ.get("CORRAL_EXAMPLES", "steady")
settings.load_profile(EXAMPLES)

if EXAMPLES == "steady":
    # Numbers and words that stand in modules imported so far are examples too, as Hypothesis has it: which
    # tests ran before would decide what this one tries. Derandomizing does not keep that out.
    assert callable(providers._get_local_constants)
    providers._get_local_constants = lambda: providers._local_constants
