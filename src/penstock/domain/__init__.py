"""Values and rules: no I/O, no asyncio, no wall clock, no randomness; `now` is an argument."""
