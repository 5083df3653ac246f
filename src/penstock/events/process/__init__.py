"""A pointer came: begin the job, deliver it, decide what follows."""

from penstock.events.process.dead_letters import DeadLetters, NoDeadLetters, PubsubDeadLetters
from penstock.events.process.process import ProcessMetrics, Processor
from penstock.events.process.route import PATH, ProcessRoute
from penstock.events.process.tokens import AuthTokens, auth_secrets
from penstock.events.process.verdict import judge, told

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
    "judge",
    "told",
]
