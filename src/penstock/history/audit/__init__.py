"""The job `audit`: proof from events, jobs and attempts that nothing was lost and every key kept its order."""
