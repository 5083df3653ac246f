"""What several suites of tests stand on: the database of jobs, and parts of Penstock in processes of their own."""
