"""Pools: lanes, turns, rate limits and deliveries."""
