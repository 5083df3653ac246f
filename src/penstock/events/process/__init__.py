"""Processes a pointer: begin the job, deliver it, and decide what follows."""

from penstock.events.process.dead_letters import DeadLetters, NoDeadLetters, PubsubDeadLetters
from penstock.events.process.processor import ProcessMetrics, Processor
from penstock.events.process.route import PATH, ProcessRoute
from penstock.events.process.tokens import AuthTokens, auth_secrets
from penstock.events.process.verdict import error_text, judge

__all__ = [
    "PATH",
    "AuthTokens",
    "DeadLetters",
    "NoDeadLetters",
    "ProcessMetrics",
    "ProcessRoute",
    "Processor",
    "PubsubDeadLetters",
    "auth_secrets",
    "error_text",
    "judge",
]
