"""What a simulation ends with when the router did something it must never do."""


class InvariantBroken(AssertionError):
    """A promise of the router did not hold; the text says which, and the seed that shows it."""
