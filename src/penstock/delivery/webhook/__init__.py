"""Webhooks: the request that a subscriber gets, and its delivery."""
