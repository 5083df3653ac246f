"""The API of jobs, events, subscriptions and pools."""
