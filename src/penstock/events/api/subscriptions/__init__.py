"""`/api/v1/subscriptions`: their routes, what they answer, their state, and trial deliveries."""
