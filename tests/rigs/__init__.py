"""What several suites of tests stand on: databases, endpoints, worlds, and parts of Penstock in their own processes."""
