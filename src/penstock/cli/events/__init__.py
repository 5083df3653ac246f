"""Commands about events, subscriptions, jobs and pools, through the API."""
