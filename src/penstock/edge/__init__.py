"""Where the outside world enters: wall clock, randomness, disk space, node number. Other code takes them as values."""
