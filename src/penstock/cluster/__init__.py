"""Leases with fencing tokens, leadership and standby."""
