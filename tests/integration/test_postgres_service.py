import psycopg


def test_postgres_answers(postgres_database: str) -> None:
    with psycopg.connect(postgres_database) as connection:
        assert connection.execute("select 1").fetchone() == (1,)


def test_each_test_has_an_empty_database_of_its_own(postgres_url: str, postgres_database: str) -> None:
    with psycopg.connect(postgres_database) as connection:
        tables = connection.execute("select count(*) from pg_tables where schemaname = 'public'").fetchone()
        assert tables == (0,)
    assert postgres_database != postgres_url


def test_the_server_does_not_wait_for_the_disk(postgres_database: str) -> None:
    with psycopg.connect(postgres_database) as connection:
        assert connection.execute("show fsync").fetchone() == ("off",)
