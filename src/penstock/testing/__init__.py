"""The public test kit: what Penstock's own tests and its users' tests drive the system with."""
