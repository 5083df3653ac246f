"""Accepting events: CloudEvents over HTTP, kept once however often they are sent."""
