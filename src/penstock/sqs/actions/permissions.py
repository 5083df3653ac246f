"""AddPermission and RemovePermission: statements of a queue's policy, which are stored and shown but not enforced."""

import re
from typing import Any

import msgspec

from penstock.sqs.auth.caller import SqsCaller
from penstock.sqs.errors import ErrorKind, SqsError, invalid_parameter, missing_parameter
from penstock.sqs.model import AddPermissionRequest, EmptyResponse, RemovePermissionRequest
from penstock.sqs.queue.queue import SqsQueue
from penstock.sqs.service import SqsService

_LABEL = re.compile(r"[A-Za-z0-9_-]{1,80}")
_ACCOUNT = re.compile(r"\d{12}")
_MAX_ACTIONS = 7
_ACTIONS = frozenset(
    {
        "*",
        "SendMessage",
        "ReceiveMessage",
        "DeleteMessage",
        "ChangeMessageVisibility",
        "GetQueueAttributes",
        "GetQueueUrl",
        "ListDeadLetterSourceQueues",
        "PurgeQueue",
    }
)


async def add_permission(service: SqsService, caller: SqsCaller, request: AddPermissionRequest) -> EmptyResponse:
    """Add a statement to the queue's policy."""
    _check(request)
    async with service.catalog_lock:
        queue = service.of_url(caller, request.queue_url)
        policy = _policy_of(service, queue)
        if any(statement.get("Sid") == request.label for statement in policy["Statement"]):
            raise _invalid_label(request.label, "Already exists.")
        policy["Statement"].append(
            {
                "Sid": request.label,
                "Effect": "Allow",
                "Principal": {"AWS": _one_or_all([f"arn:aws:iam::{each}:root" for each in request.aws_account_ids])},
                "Action": _one_or_all([f"SQS:{action}" for action in request.actions]),
                "Resource": service.arn_of(queue.name),
            }
        )
        await _put_policy(service, queue, policy)
    return EmptyResponse()


async def remove_permission(service: SqsService, caller: SqsCaller, request: RemovePermissionRequest) -> EmptyResponse:
    """Remove a statement from the queue's policy."""
    async with service.catalog_lock:
        queue = service.of_url(caller, request.queue_url)
        policy = _policy_of(service, queue)
        kept = [statement for statement in policy["Statement"] if statement.get("Sid") != request.label]
        if len(kept) == len(policy["Statement"]):
            raise _invalid_label(request.label, "can't find label.")
        policy["Statement"] = kept
        await _put_policy(service, queue, policy if kept else None)
    return EmptyResponse()


def _check(request: AddPermissionRequest) -> None:
    if not _LABEL.fullmatch(request.label):
        raise _invalid_label(request.label, "Must be 1 to 80 of A-Z, a-z, 0-9, hyphen and underscore.")
    if not request.actions:
        raise missing_parameter("Actions")
    if not request.aws_account_ids:
        raise _unknown_principal("")
    if len(request.actions) > _MAX_ACTIONS:
        raise SqsError(
            ErrorKind.OVER_LIMIT, f"{len(request.actions)} Actions were found, maximum allowed is {_MAX_ACTIONS}."
        )
    for account in request.aws_account_ids:
        if not _ACCOUNT.fullmatch(account):
            raise _unknown_principal(account)
    for action in request.actions:
        if action not in _ACTIONS:
            raise invalid_parameter(
                f"Value SQS:{action} for parameter ActionName is invalid. Reason: Only the queue owner is allowed to "
                "invoke this action."
            )


def _one_or_all(texts: list[str]) -> str | list[str]:
    """Return a value of a policy document as AWS writes it: a single one is not a list."""
    return texts[0] if len(texts) == 1 else texts


def _unknown_principal(account: str) -> SqsError:
    return invalid_parameter(f"Value [{account[:100]}] for parameter PrincipalId is invalid. Reason: Unable to verify.")


def _policy_of(service: SqsService, queue: SqsQueue) -> dict[str, Any]:
    if queue.attributes.policy:
        policy: dict[str, Any] = msgspec.json.decode(queue.attributes.policy)
        statements = policy.setdefault("Statement", [])
        if not isinstance(statements, list):
            policy["Statement"] = [statements]
        return policy
    return {"Version": "2008-10-17", "Id": f"{service.arn_of(queue.name)}/SQSDefaultPolicy", "Statement": []}


async def _put_policy(service: SqsService, queue: SqsQueue, policy: dict[str, Any] | None) -> None:
    text = msgspec.json.encode(policy).decode() if policy is not None else ""
    attributes = msgspec.structs.replace(queue.attributes, policy=text)
    await service.change(queue, msgspec.structs.replace(queue.record, attributes=attributes))


def _invalid_label(label: str, reason: str) -> SqsError:
    return invalid_parameter(f"Value {label} for parameter Label is invalid. Reason: {reason}")
