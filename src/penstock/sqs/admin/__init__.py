"""The admin surface: list, describe, peek, purge and redrive."""
