"""A queue in an SQLite file, shared by the processes of one machine."""
