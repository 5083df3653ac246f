"""Python data sources over the database of jobs: batch reads in parallel ranges, and streams by position."""
