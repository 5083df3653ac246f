"""`/api/v1/jobs`, groups and replays."""
