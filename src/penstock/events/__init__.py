"""Events, subscriptions and dispatch jobs: what they are, and the databases that keep them."""
