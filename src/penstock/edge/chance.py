"""Randomness."""

import random
import secrets


def random_share() -> float:
    """A number from 0 to 1, to spread things out with; nothing to keep a secret by."""
    return random.random()


def random_bytes(count: int) -> bytes:
    """Bytes that nobody can guess."""
    return secrets.token_bytes(count)
