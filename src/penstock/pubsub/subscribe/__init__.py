"""The Subscriber service: subscriptions, and consuming them."""
