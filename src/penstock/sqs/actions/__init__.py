"""The 23 actions, one file per family."""
