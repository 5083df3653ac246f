"""The catalogue of event types: what schemas may be, events compared with them, and the AsyncAPI document."""

from penstock.events.catalogue.asyncapi import asyncapi_document
from penstock.events.catalogue.event_schemas import EventSchemas, check_data, check_event_type, decoded

__all__ = ["EventSchemas", "asyncapi_document", "check_data", "check_event_type", "decoded"]
