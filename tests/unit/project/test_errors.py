"""Every error of the package has one of the root codes, and stands in the tree of its errors.py."""

import importlib
import inspect
import pickle
import pkgutil
import re
from functools import cache
from types import ModuleType

import pytest

import penstock
from penstock.broker.errors import InvalidAckId, TopicNotFound
from penstock.domain import errors as core_errors
from penstock.domain.errors import PenstockError
from penstock.engine.errors import StoreFailed
from penstock.ops.config.errors import ConfigError, ConfigProblem

ROOT_CODES = {
    "InvalidArgument": 3,
    "NotFound": 5,
    "AlreadyExists": 6,
    "ResourceExhausted": 8,
    "FailedPrecondition": 9,
    "Unavailable": 14,
}


@cache
def modules() -> list[ModuleType]:
    """Every module of the package that the installed extras allow."""
    names = [found.name for found in pkgutil.walk_packages(penstock.__path__, "penstock.")]
    return [module for name in names if not name.endswith("__main__") if (module := imported(name)) is not None]


def imported(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "penstock").split(".")[0] == "penstock":
            raise
        return None


def defined_classes(module: ModuleType) -> list[type]:
    """The classes that a module defines itself."""
    return [thing for _, thing in inspect.getmembers(module, inspect.isclass) if thing.__module__ == module.__name__]


def error_classes() -> list[type[PenstockError]]:
    """Every PenstockError that some module defines."""
    return [
        thing
        for module in modules()
        for thing in defined_classes(module)
        if issubclass(thing, PenstockError) and thing is not PenstockError
    ]


def errors_modules() -> list[ModuleType]:
    """The errors.py of every package."""
    return [module for module in modules() if module.__name__.endswith(".errors")]


def test_the_walk_finds_errors() -> None:
    names = {error.__name__ for error in error_classes()}

    assert names >= {*ROOT_CODES, "TopicNotFound", "InvalidAckId", "LeaseNotFound", "StoreLocked", "ConfigError"}


def test_the_six_roots_have_stable_codes() -> None:
    assert {name: getattr(core_errors, name).code for name in ROOT_CODES} == ROOT_CODES
    assert PenstockError.code == 2


def test_every_error_has_the_code_of_its_one_root() -> None:
    for error in error_classes():
        roots = [root for root in error.__mro__ if root.__module__ == core_errors.__name__]
        assert roots.pop() is PenstockError
        # One without a root is a protocol's own, which no other protocol has to map.
        codes = [ROOT_CODES[root.__name__] for root in roots] or [PenstockError.code]
        assert codes == [error.code], error


def test_every_error_is_defined_in_an_errors_module() -> None:
    assert [error for error in error_classes() if not error.__module__.endswith(".errors")] == []


def test_the_docstring_of_errors_draws_every_error_below_its_parent() -> None:
    for module in errors_modules():
        drawn = re.findall(r"^([├└─ │]*)(\w+)", module.__doc__ or "", re.MULTILINE)
        names = [name for _, name in drawn]
        defined = [error for error in defined_classes(module) if issubclass(error, PenstockError)]
        assert defined, module
        assert {error.__name__ for error in defined} <= set(names), module
        for error in defined:
            place = names.index(error.__name__)
            parents = [name for indent, name in drawn[:place] if len(indent) < len(drawn[place][0])]
            if error.__bases__[0] not in (PenstockError, Exception) or parents:
                assert parents[-1:] == [error.__bases__[0].__name__], error


def test_an_error_says_its_message() -> None:
    error = core_errors.NotFound("Topic not found: orders")

    assert (error.code, error.message, str(error)) == (5, "Topic not found: orders", "Topic not found: orders")


@pytest.mark.parametrize(
    "raised",
    [
        core_errors.NotFound("no such thing"),
        TopicNotFound("orders"),
        InvalidAckId("abc123"),
        StoreFailed("the disk is full"),
        ConfigError([ConfigProblem("node.id", "penstock.toml", "must be a number")]),
    ],
    ids=lambda raised: type(raised).__name__,
)
def test_an_error_survives_the_way_to_another_process(raised: PenstockError) -> None:
    copy = pickle.loads(pickle.dumps(raised))

    assert (type(copy), copy.code, copy.message) == (type(raised), raised.code, raised.message)
    assert str(copy) == str(raised)
    assert vars(copy) == vars(raised)
