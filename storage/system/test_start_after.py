"""A start, and a branch, right after the kinds of WAL that are easy to get wrong.

Each scenario prepares a state and returns the check for it. The check runs on a compute started after
kill -9 of the one that made the state, and on a compute of a fresh branch.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from harness import Compute, Engine
from workloads import amcheck

Check = Callable[[Compute], None]
Scenario = Callable[[Compute], Check]


def multixacts_with_many_members(compute: Compute) -> Check:
    """Row locks shared by many transactions; then still held members must not be forgotten or invented."""
    compute.sql("CREATE TABLE locked (id int PRIMARY KEY, n int DEFAULT 0)")
    compute.sql("INSERT INTO locked SELECT generate_series(1, 50)")
    holders = [compute.connect(autocommit=False) for _ in range(24)]
    for holder in holders:
        holder.execute("SELECT 1 FROM locked FOR KEY SHARE")
    # A key-preserving update under shared locks keeps the lockers in the new version's multixact.
    compute.sql("UPDATE locked SET n = n + 1")
    for holder in holders:
        holder.commit()
        holder.close()
    before = compute.sql("SELECT next_multixact_id::text::bigint, next_multi_offset FROM pg_control_checkpoint()")
    compute_next = before[0][0]

    def check(started: Compute) -> None:
        assert started.sql("SELECT count(*), sum(n) FROM locked") == [(50, 50)]
        started.sql("UPDATE locked SET n = n + 1")
        assert started.sql("SELECT sum(n) FROM locked") == [(100,)]
        next_multi = started.sql("SELECT next_multixact_id::text::bigint FROM pg_control_checkpoint()")[0][0]
        assert next_multi >= compute_next, "the next multixact went back: live members would be overwritten"

    return check


def subtransactions(compute: Compute) -> Check:
    """More subtransactions than fit the proc array's cache, half of them rolled back."""
    compute.sql("CREATE TABLE sub (id int PRIMARY KEY)")
    with compute.connect(autocommit=False) as session:
        for number in range(200):
            session.execute("SAVEPOINT s")
            session.execute("INSERT INTO sub VALUES (%s)", (number,))
            session.execute("ROLLBACK TO s" if number % 2 else "RELEASE s")
    expected = [(100, sum(range(0, 200, 2)))]
    assert compute.sql("SELECT count(*), sum(id) FROM sub") == expected

    def check(started: Compute) -> None:
        assert started.sql("SELECT count(*), sum(id) FROM sub") == expected

    return check


def prepared_transactions(compute: Compute) -> Check:
    """A prepared transaction survives with its locks and commits on the new compute."""
    compute.sql("CREATE TABLE prepared (id int PRIMARY KEY)")
    with compute.connect(autocommit=False) as session:
        session.execute("INSERT INTO prepared VALUES (1)")
        session.execute("SAVEPOINT s")
        session.execute("INSERT INTO prepared VALUES (2)")
        session.execute("PREPARE TRANSACTION 'to commit'")
    with compute.connect(autocommit=False) as session:
        session.execute("INSERT INTO prepared VALUES (3)")
        session.execute("PREPARE TRANSACTION 'to roll back'")

    def check(started: Compute) -> None:
        gids = started.sql("SELECT gid FROM pg_prepared_xacts ORDER BY 1")
        assert gids == [("to commit",), ("to roll back",)]
        assert started.sql("SELECT count(*) FROM prepared") == [(0,)]
        started.sql("COMMIT PREPARED 'to commit'")
        started.sql("ROLLBACK PREPARED 'to roll back'")
        assert started.sql("SELECT array_agg(id ORDER BY id) FROM prepared") == [([1, 2],)]

    return check


def relation_map_changes(compute: Compute) -> Check:
    """VACUUM FULL of mapped catalogs moves them; the new map must be found at the start."""
    with compute.admin() as session:
        for catalog in ("pg_class", "pg_proc", "pg_type", "pg_attribute", "pg_database"):
            session.execute(f"VACUUM FULL {catalog}")
    compute.sql("CREATE TABLE after_vacuum_full (id int)")
    filenodes = """SELECT oid::regclass::text, pg_relation_filenode(oid) FROM pg_class
                   WHERE relfilenode = 0 AND relkind = 'r' ORDER BY 1"""
    expected = compute.sql(filenodes)

    def check(started: Compute) -> None:
        assert started.sql(filenodes) == expected
        assert started.sql("SELECT count(*) FROM after_vacuum_full") == [(0,)]

    return check


def new_oids_and_sequences(compute: Compute) -> Check:
    """OIDs and sequence values handed out before are never handed out again."""
    for number in range(30):
        compute.sql(f"CREATE TABLE oid_{number} (id serial PRIMARY KEY)")
    compute.sql("CREATE SEQUENCE counter")
    highest = compute.sql("SELECT max(oid::bigint) FROM pg_class")[0][0]
    last = compute.sql("SELECT max(nextval('counter')) FROM generate_series(1, 1000)")[0][0]

    def check(started: Compute) -> None:
        assert started.sql("SELECT nextval('counter')")[0][0] > last
        started.sql("CREATE TABLE oid_after (id int)")
        assert started.sql("SELECT 'oid_after'::regclass::oid::bigint")[0][0] > highest

    return check


def truncated_and_filled_again(compute: Compute) -> Check:
    """Blocks behind a truncation stay gone, and new ones at their place hold the new rows only."""
    compute.sql("CREATE TABLE cut (id int, filler text)")
    compute.sql("INSERT INTO cut SELECT n, repeat('old', 300) FROM generate_series(1, 2000) n")
    with compute.admin() as session:
        session.execute("CHECKPOINT")
    compute.sql("DELETE FROM cut WHERE id > 100")
    compute.sql("VACUUM (TRUNCATE) cut")
    compute.sql("INSERT INTO cut SELECT n, repeat('new', 300) FROM generate_series(5001, 5500) n")
    compute.sql("CREATE TABLE emptied AS SELECT n AS id FROM generate_series(1, 5000) n")
    compute.sql("TRUNCATE emptied")
    compute.sql("INSERT INTO emptied VALUES (42)")
    with compute.connect(autocommit=False) as session:
        session.execute("CREATE TABLE in_one AS SELECT n AS id FROM generate_series(1, 3000) n")
        session.execute("TRUNCATE in_one")
        session.execute("INSERT INTO in_one VALUES (7)")

    def check(started: Compute) -> None:
        rows = started.sql("SELECT count(*), count(*) FILTER (WHERE filler LIKE 'old%%'), max(id) FROM cut")
        assert rows == [(600, 100, 5500)]
        assert started.sql("SELECT array_agg(id) FROM emptied") == [([42],)]
        assert started.sql("SELECT array_agg(id) FROM in_one") == [([7],)]

    return check


def databases_by_both_strategies(compute: Compute) -> Check:
    """CREATE DATABASE copies by WAL or by file; both arrive, dropped ones do not."""
    with compute.admin() as session:
        session.execute("CREATE DATABASE by_wal STRATEGY wal_log TEMPLATE appdb")
        session.execute("CREATE DATABASE by_file STRATEGY file_copy TEMPLATE template0")
        session.execute("CREATE DATABASE dropped STRATEGY file_copy TEMPLATE template0")
        session.execute("DROP DATABASE dropped")
    with compute.admin("by_file") as session:
        session.execute("CREATE TABLE in_copy AS SELECT generate_series(1, 500) AS id")

    def check(started: Compute) -> None:
        names = {name for (name,) in started.sql("SELECT datname FROM pg_database")}
        assert {"by_wal", "by_file"} <= names
        assert "dropped" not in names
        with started.admin("by_file") as session:
            assert session.execute("SELECT count(*) FROM in_copy").fetchone() == (500,)
        amcheck(started, "by_file")
        amcheck(started, "by_wal")

    return check


BURN = """DO $$ BEGIN FOR i IN 1..{count} LOOP
    BEGIN INSERT INTO burnt VALUES (i); EXCEPTION WHEN division_by_zero THEN NULL; END;
END LOOP; END $$"""
XIDS_PER_PAGE = 8192 * 4


def next_xid_on_a_clog_page_boundary(compute: Compute) -> Check:
    """The next transaction id is the first of a clog page that does not exist yet."""
    compute.sql("CREATE TABLE burnt (id int)")
    compute.sql("CREATE TABLE edge (id int)")

    def next_xid() -> int:
        return compute.sql("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint")[0][0]

    while (left := XIDS_PER_PAGE - next_xid() % XIDS_PER_PAGE) > 200:
        compute.sql(BURN.format(count=min(left - 100, 10_000)))
    # Autovacuum may take an id too, so the last ones are taken one by one.
    while (left := -next_xid() % XIDS_PER_PAGE) > 0 and left < XIDS_PER_PAGE - 50:
        compute.sql("INSERT INTO edge VALUES (1)")
    committed = compute.sql("SELECT count(*) FROM edge")

    def check(started: Compute) -> None:
        assert started.sql("SELECT count(*) FROM edge") == committed
        for _ in range(3):
            started.sql("INSERT INTO edge VALUES (2)")
        assert started.sql("SELECT count(*) FROM edge WHERE id = 2") == [(3,)]

    return check


MULTIS_PER_PAGE = 2048


def next_multi_on_an_offsets_page_boundary(compute: Compute) -> Check:
    """The next multixact is the first of an offsets page that does not exist yet."""
    compute.sql("CREATE TABLE multi (id int PRIMARY KEY, n int DEFAULT 0)")
    compute.sql("INSERT INTO multi SELECT generate_series(1, 2200)")

    def next_multi() -> int:
        with compute.admin() as session:
            session.execute("CHECKPOINT")
        return int(compute.sql("SELECT next_multixact_id FROM pg_control_checkpoint()")[0][0])

    left = MULTIS_PER_PAGE - next_multi() % MULTIS_PER_PAGE
    holder = compute.connect(autocommit=False)
    holder.execute("SELECT 1 FROM multi FOR KEY SHARE")
    # Each subtransaction has its own id, so that each row's pair of lockers is a new multixact.
    compute.sql(
        f"""DO $$ BEGIN FOR i IN 1..{left} LOOP
              BEGIN PERFORM 1 FROM multi WHERE id = i FOR KEY SHARE; EXCEPTION WHEN division_by_zero THEN NULL; END;
            END LOOP; END $$"""
    )
    reached = next_multi()
    assert reached % MULTIS_PER_PAGE == 0, f"next multixact is {reached}, not on a page boundary"
    holder.commit()
    holder.close()

    def check(started: Compute) -> None:
        assert started.sql("SELECT count(*) FROM multi") == [(2200,)]
        one, two = started.connect(autocommit=False), started.connect(autocommit=False)
        one.execute("SELECT 1 FROM multi WHERE id < 100 FOR KEY SHARE")
        two.execute("SELECT 1 FROM multi WHERE id < 100 FOR KEY SHARE")
        one.commit()
        two.commit()
        one.close()
        two.close()
        started.sql("UPDATE multi SET n = n + 1")
        assert started.sql("SELECT sum(n) FROM multi") == [(2200,)]

    return check


def unlogged_and_temporary(compute: Compute) -> Check:
    """An unlogged table is there and empty after a start; its indexes work."""
    compute.sql("CREATE UNLOGGED TABLE scratch (id int PRIMARY KEY)")
    compute.sql("INSERT INTO scratch SELECT generate_series(1, 100)")

    def check(started: Compute) -> None:
        assert started.sql("SELECT count(*) FROM scratch") == [(0,)]
        started.sql("INSERT INTO scratch SELECT generate_series(1, 100)")
        assert started.sql("SELECT count(*) FROM scratch WHERE id = 50") == [(1,)]

    return check


SCENARIOS: list[Scenario] = [
    multixacts_with_many_members,
    subtransactions,
    prepared_transactions,
    relation_map_changes,
    new_oids_and_sequences,
    truncated_and_filled_again,
    databases_by_both_strategies,
    next_xid_on_a_clog_page_boundary,
    next_multi_on_an_offsets_page_boundary,
    unlogged_and_temporary,
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_start_and_branch_after(shared: Engine, scenario: Scenario) -> None:
    compute = shared.compute(shared.create_timeline())
    check = scenario(compute)
    # Everything the scenario committed is committed by a majority; a branch from now on includes it.
    commit_lsn = compute.status()["commit_lsn"]
    shared.wait_ingested(compute.timeline, commit_lsn)
    branch = shared.branch(compute.timeline)
    compute.kill9()

    restarted = shared.compute(compute.timeline)
    check(restarted)
    amcheck(restarted)
    restarted.suspend()

    on_branch = shared.compute(branch)
    check(on_branch)
    amcheck(on_branch)
    on_branch.suspend()
