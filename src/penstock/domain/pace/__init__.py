"""How fast things may go: rates that are not exceeded, and credit for what is published ahead."""
