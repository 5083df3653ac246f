"""The webhook: what a subscriber gets, and how."""
