"""The database of events: one repository, named SQL, migrations, SQLite and PostgreSQL."""
