"""The audit: proves from events, jobs and attempts that nothing was lost and that every key kept its order."""
