"""Policy documents: their grammar, which AWS checks when one is set. What a policy says is not enforced."""

import logging
from typing import Any

from penstock.sqs.errors import ErrorKind, SqsError
from penstock.sqs.queue.redrive import json_object

log = logging.getLogger(__name__)

MAX_STATEMENTS = 20

_VERSIONS = (None, "2008-10-17", "2012-10-17")
_DOCUMENT = frozenset({"Version", "Id", "Statement"})
_STATEMENT = frozenset(
    {
        "Sid",
        "Effect",
        "Principal",
        "NotPrincipal",
        "Action",
        "NotAction",
        "Resource",
        "NotResource",
        "Condition",
    }
)
_ONE_OF_EACH = (frozenset({"Principal", "NotPrincipal"}), frozenset({"Action", "NotAction"}))


def statements_of(document: dict[str, Any]) -> list[Any]:
    """Return the statements of a policy, of which a single one need not be in a list."""
    statements = document.get("Statement", [])
    return statements if isinstance(statements, list) else [statements]


def is_policy(document: dict[str, Any]) -> bool:
    """Return whether a JSON object is a policy; raise OverLimit if it has too many statements."""
    statements = statements_of(document)
    if not document.keys() <= _DOCUMENT or document.get("Version") not in _VERSIONS or not statements:
        return False
    if len(statements) > MAX_STATEMENTS:
        raise SqsError(
            ErrorKind.OVER_LIMIT,
            f"{len(statements)} statements were found in the submitted policy, max allowed is {MAX_STATEMENTS}",
        )
    return all(_is_statement(statement) for statement in statements)


def _is_statement(statement: object) -> bool:
    if not isinstance(statement, dict) or not statement.keys() <= _STATEMENT:
        return False
    # The policy of a resource says for whom it is, and every statement what it is about, each in one of two ways.
    named = all(len(pair & statement.keys()) == 1 for pair in _ONE_OF_EACH)
    return named and statement.get("Effect") in ("Allow", "Deny")


def warn_of_denials(queue_name: str, policy: str, before: str = "") -> None:
    """Log a warning if a new policy would deny something on AWS, which someone may rely on."""
    if policy and policy != before and (denials := _denials(policy)):
        log.warning(
            "the policy of queue %s would deny %s on AWS; here it is stored and not enforced: "
            "give keys of the role client to those who must not do it",
            queue_name,
            ", ".join(denials),
        )


def _denials(policy: str) -> list[str]:
    """Return the actions that a policy denies, at most some of them; those that it does not allow are not looked at."""
    found: list[str] = []
    for statement in statements_of(json_object(policy) or {}):
        if isinstance(statement, dict) and statement.get("Effect") == "Deny":
            named = statement.get("Action", statement.get("NotAction", "something"))
            found += map(str, named if isinstance(named, list) else [named])
    return [each[:100] for each in found[:10]]
