"""Findings of an audit lead to the web page."""

from typing import Any

import pytest

from penstock.history.audit.findings import Finding, FindingKind
from penstock.history.audit.page import address


@pytest.mark.parametrize(
    ("fields", "to"),
    [
        ({"job_id": "0S97H09Y5P000-0S97"}, "https://ops.example/jobs-page/#/jobs/0S97H09Y5P000-0S97"),
        ({"job_id": "a/b#<c>~d"}, "https://ops.example/jobs-page/#/jobs/a%2Fb%23%3Cc%3E~d"),
        ({"kind": FindingKind.LOST, "event_id": "0S97 &"}, "https://ops.example/jobs-page/#/jobs?q=0S97%20%26"),
        ({"kind": FindingKind.DAMAGED, "subscription_id": "0S97"}, None),
        # The page would not find it either.
        ({"kind": FindingKind.UNKNOWN_JOB, "job_id": "nobody"}, None),
    ],
)
def test_a_finding_leads_to_its_job_or_its_event(fields: dict[str, Any], to: str | None) -> None:
    finding = Finding(**{"kind": FindingKind.OVERTAKEN, "detail": "", **fields})
    assert address("https://ops.example/jobs-page/", finding) == to
