"""How far a property is searched: a little by `make test`, further by `make test-long`, furthest by `make test-all`.

`HYPOTHESIS_PROFILE` names one of the profiles. Simulations start at another seed every day and with every commit, and
Hypothesis tries other examples each time, unless `SEARCH_SEED` is set: CI sets it, so that a change is judged by what
it changed, and not by what a search happened upon.
"""

import os
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

QUICK = "quick"
MOST_EXAMPLES = {QUICK: 30, "search": 150, "thorough": 500}
_QUICK_SHARE = 5
_ROOT = Path(__file__).parents[2]


def load_profile() -> None:
    """Make Hypothesis search as far as the environment says."""
    for name, most in MOST_EXAMPLES.items():
        # No deadline: a busy machine is not a bug. The blob lets a failure be replayed on another machine.
        repeats = "SEARCH_SEED" in os.environ
        settings.register_profile(name, deadline=None, print_blob=True, max_examples=most, derandomize=repeats)
    settings.load_profile(_profile())


def examples(most: int) -> int:
    """Return how many examples a property tries that needs its own number: a fifth of it in a quick run."""
    return max(most // _QUICK_SHARE, 1) if _profile() == QUICK else most


def _profile() -> str:
    return os.environ.get("HYPOTHESIS_PROFILE") or QUICK


def seed_chunks(quick: int, most: int, *, chunk: int, long_chunk: int) -> list[Any]:
    """Return (first, number of seeds) for `parametrize`: up to `quick` in small chunks, from there on `long` ones."""
    return [
        *((first, chunk) for first in range(0, quick, chunk)),
        *(
            pytest.param((first, min(long_chunk, most - first)), marks=pytest.mark.long)
            for first in range(quick, most, long_chunk)
        ),
    ]


def search_seeds(simulate: Callable[[int], object], chunk: tuple[int, int], command: str) -> None:
    """Simulate a chunk of this run's seeds; a failure says how to run its seed again."""
    first, seeds = chunk
    for seed in range(first_seed() + first, first_seed() + first + seeds):
        try:
            simulate(seed)
        except Exception as error:
            error.add_note(f"to run it again: {command} --first {seed} --seeds 1")
            raise


@cache
def first_seed() -> int:
    """`SEARCH_SEED`, else another one for each day and commit, so that every run searches elsewhere."""
    if fixed := os.environ.get("SEARCH_SEED"):
        return int(fixed)
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=_ROOT, capture_output=True, text=True, check=False).stdout
    today = datetime.now(UTC).date().isoformat()
    return int.from_bytes(sha256(f"{today} {commit}".encode()).digest()[:4])
