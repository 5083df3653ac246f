"""The public test kit, used by Penstock's own tests and by those of its users."""
