"""One queue in memory: pure, with the clock as an argument."""
