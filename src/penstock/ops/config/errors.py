"""Errors of the configuration.

InvalidArgument
└── ConfigError                   one or more settings are invalid; `problems` lists all of them
"""

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.domain.errors import InvalidArgument


@dataclass(frozen=True)
class ConfigProblem:
    """A problem of the configuration: its key, its source, and what is allowed."""

    key: str
    source: str
    message: str

    def __str__(self) -> str:
        return f"{self.key} ({self.source}): {self.message}" if self.key else f"{self.source}: {self.message}"


class ConfigError(InvalidArgument):
    """The configuration is invalid; the message lists every problem."""

    def __init__(self, problems: Iterable[ConfigProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(str(problem) for problem in self.problems))

    def __reduce__(self) -> tuple[type["ConfigError"], tuple[tuple[ConfigProblem, ...]]]:
        # Exception would pickle the message, which this constructor does not take.
        return type(self), (self.problems,)
