"""Where the outside world enters: the wall clock, this process's identity. Everything inside takes them as values."""
