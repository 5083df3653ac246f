"""Requests to other people's endpoints: the HTTP client, the egress guard, breakers and webhooks."""

from penstock.delivery.attempt import Attempts, Client
from penstock.delivery.breakers import Breakers, BreakerView
from penstock.delivery.egress import AnyAddress, EgressGuard
from penstock.delivery.errors import (
    AnswerTimedOut,
    ConnectFailed,
    ConnectionBroken,
    ConnectTimedOut,
    DeliveryFailed,
    SecretUnreadable,
    Undeliverable,
)
from penstock.delivery.http.answer import Answer
from penstock.delivery.http.client import HttpClient, exchange_once
from penstock.delivery.http.request import Headers, RequestHead, Target, head_with, parse_target, request_head
from penstock.delivery.http.settings import DeliverySettings, own_part_settings
from penstock.delivery.webhook.certificates import checked_certificate, facts_of
from penstock.delivery.webhook.courier import Courier, CourierSettings, WebhookDelivery, open_courier, undeliverable
from penstock.delivery.webhook.request import (
    DeliveryRequest,
    checked_headers,
    cloud_event,
    delivery_request,
    envelope_of,
)
from penstock.delivery.webhook.secret_box import SEALED, SecretBox, encryption_keys
from penstock.delivery.webhook.trace import span_of_delivery, span_of_event, trace_of_event, trace_of_job

__all__ = [
    "SEALED",
    "Answer",
    "AnswerTimedOut",
    "AnyAddress",
    "Attempts",
    "BreakerView",
    "Breakers",
    "Client",
    "ConnectFailed",
    "ConnectTimedOut",
    "ConnectionBroken",
    "Courier",
    "CourierSettings",
    "DeliveryFailed",
    "DeliveryRequest",
    "DeliverySettings",
    "EgressGuard",
    "Headers",
    "HttpClient",
    "RequestHead",
    "SecretBox",
    "SecretUnreadable",
    "Target",
    "Undeliverable",
    "WebhookDelivery",
    "checked_certificate",
    "checked_headers",
    "cloud_event",
    "delivery_request",
    "encryption_keys",
    "envelope_of",
    "exchange_once",
    "facts_of",
    "head_with",
    "open_courier",
    "own_part_settings",
    "parse_target",
    "request_head",
    "span_of_delivery",
    "span_of_event",
    "trace_of_event",
    "trace_of_job",
    "undeliverable",
]
