"""Policy documents: their grammar, which AWS checks when one is set. What a policy says is not enforced."""

from typing import Any

from penstock.sqs.errors import ErrorKind, SqsError

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
    return statement.get("Effect") in ("Allow", "Deny")
