"""Randomness, predictable and cryptographic."""

import random
import secrets


def random_share() -> float:
    """Return a number from 0 to 1, for jitter; not for secrets."""
    return random.random()


def random_bytes(count: int) -> bytes:
    """Return cryptographically random bytes."""
    return secrets.token_bytes(count)
