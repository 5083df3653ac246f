"""Pools: lanes of groups, turns, rate limits and deliveries."""
