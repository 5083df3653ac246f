"""The 23 actions, one module per family."""
