"""How far a property is searched: a little by `make test`, further by `make test-long`, furthest by `make test-all`.

`HYPOTHESIS_PROFILE` names one of the profiles.
"""

import os

from hypothesis import settings

QUICK = "quick"
MOST_EXAMPLES = {QUICK: 30, "search": 150, "thorough": 500}
_QUICK_SHARE = 5


def load_profile() -> None:
    """Make Hypothesis search as far as the environment says."""
    for name, most in MOST_EXAMPLES.items():
        # No deadline: a busy machine is not a bug. The blob lets a failure be replayed on another machine.
        settings.register_profile(name, deadline=None, print_blob=True, max_examples=most)
    settings.load_profile(_profile())


def examples(most: int) -> int:
    """Return how many examples a property tries that needs its own number: a fifth of it in a quick run."""
    return max(most // _QUICK_SHARE, 1) if _profile() == QUICK else most


def _profile() -> str:
    return os.environ.get("HYPOTHESIS_PROFILE") or QUICK
