"""The customers' portal: tokens of a tenant, and what they may do with the API."""

from penstock.events.portal.routes import PAGE_PATH, PortalLinkRoutes
from penstock.events.portal.scope import SCOPED, PortalScope, covers
from penstock.events.portal.tokens import PortalTokens

__all__ = ["PAGE_PATH", "SCOPED", "PortalLinkRoutes", "PortalScope", "PortalTokens", "covers"]
