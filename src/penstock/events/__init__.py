"""Events, subscriptions and dispatch jobs: one sub-package for each step of an event's way, and the store."""
