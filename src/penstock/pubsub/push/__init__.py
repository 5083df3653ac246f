"""Push: messages posted to the endpoints of subscriptions."""
