"""A queue's policy document, which is stored and shown but not enforced: what someone may believe that it forbids."""

import logging
from typing import Any

from penstock.sqs.queue.redrive import json_object

log = logging.getLogger(__name__)


def warn_of_denials(queue_name: str, policy: str, before: str = "") -> None:
    """Log a warning if a new policy would deny something on AWS."""
    if policy and policy != before and (denials := _denials(policy)):
        log.warning(
            "the policy of queue %s would deny %s on AWS; here it is stored and not enforced: "
            "give keys of the role client to those who must not do it",
            queue_name,
            ", ".join(denials),
        )


def _denials(policy: str) -> list[str]:
    """Return the actions that a policy denies, at most some of them; those that it does not allow are not looked at."""
    statements: Any = (json_object(policy) or {}).get("Statement", [])
    found: list[str] = []
    for statement in statements if isinstance(statements, list) else [statements]:
        if isinstance(statement, dict) and statement.get("Effect") == "Deny":
            named = statement.get("Action", statement.get("NotAction", "something"))
            found += map(str, named if isinstance(named, list) else [named])
    return [each[:100] for each in found[:10]]
