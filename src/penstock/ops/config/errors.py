"""Errors of the configuration.

InvalidArgument
└── ConfigError                   one or more settings cannot be used; `problems` has all of them
"""

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.domain.errors import InvalidArgument


@dataclass(frozen=True)
class ConfigProblem:
    """One thing wrong with the configuration: which key, from where, and what is allowed."""

    key: str
    source: str
    message: str

    def __str__(self) -> str:
        return f"{self.key} ({self.source}): {self.message}" if self.key else f"{self.source}: {self.message}"


class ConfigError(InvalidArgument):
    """The configuration cannot be used; every problem found is listed, not only the first."""

    def __init__(self, problems: Iterable[ConfigProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(str(problem) for problem in self.problems))

    def __reduce__(self) -> tuple[type["ConfigError"], tuple[tuple[ConfigProblem, ...]]]:
        # Exception pickles its message, which is not what this constructor takes.
        return type(self), (self.problems,)
