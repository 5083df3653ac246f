"""Processes a pointer: begin the job, deliver it, and decide what follows."""

from penstock.domain.pointer import PROCESS_PATH as PATH
from penstock.events.process.dead_letters import DeadLetters
from penstock.events.process.mediator import LocalProcessing
from penstock.events.process.message_targets import MESSAGE_PREFIXES, MessageTargets, check_message_target
from penstock.events.process.processor import Processor
from penstock.events.process.route import ProcessRoute
from penstock.events.process.server import ProcessSettings, open_processor
from penstock.events.process.tokens import LIFETIME_S as TOKEN_LIFETIME_S
from penstock.events.process.tokens import AuthTokens, auth_secrets
from penstock.events.process.verdict import judge

__all__ = [
    "MESSAGE_PREFIXES",
    "PATH",
    "TOKEN_LIFETIME_S",
    "AuthTokens",
    "DeadLetters",
    "LocalProcessing",
    "MessageTargets",
    "ProcessRoute",
    "ProcessSettings",
    "Processor",
    "auth_secrets",
    "check_message_target",
    "judge",
    "open_processor",
]
