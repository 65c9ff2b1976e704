"""WAL by relation: every byte is somewhere, names are those of the database's own catalogue."""

from __future__ import annotations

from typing import Any

from harness import Compute, Engine, metric, wait_for


def told(compute: Compute) -> dict[str, Any]:
    return compute.http.get("/wal_by_relation", timeout=30).raise_for_status().json()


def named(answer: dict[str, Any]) -> dict[tuple[str | None, str | None], dict[str, Any]]:
    return {(row["database"], row["relation"]): row for row in answer["relations"] if row["relation"]}


def size(counted: dict[str, Any]) -> int:
    return counted["image_bytes"] + counted["rest_bytes"]


def test_wal_is_told_by_relation_with_the_names_of_its_own_database(shared: Engine) -> None:
    compute = shared.compute(shared.create_timeline())
    compute.sql("CREATE TABLE busy (id int PRIMARY KEY, filler text)")
    compute.sql("INSERT INTO busy SELECT i, repeat('x', 200) FROM generate_series(1, 20000) i")
    compute.sql("INSERT INTO busy SELECT i, (SELECT string_agg(md5(j::text), '') FROM generate_series(1, 300) j)"
                " FROM generate_series(20001, 20010) i")  # fmt: skip

    answer = wait_for(
        "the table to be told", lambda: told(compute) if ("appdb", "busy") in named(told(compute)) else None
    )
    rows = named(answer)
    busy, key = rows["appdb", "busy"], rows["appdb", "busy_pkey"]
    assert size(busy) > 20_000 * 200
    assert (busy["schema"], busy["kind"], busy["table"]) == ("public", "table", None)
    assert (key["kind"], key["table"]) == ("index", "busy")
    toast = [row for row in rows.values() if row["kind"] == "toast" and row["table"] == "busy"]
    assert len(toast) == 1
    assert size(toast[0]) > 10 * 1000
    assert size(key) > 20_000 * 16
    sizes = [size(row) for row in answer["relations"]]
    assert sizes == sorted(sizes, reverse=True)
    assert answer["undercounted_by_at_most_bytes"] == 0
    assert answer["settings"]["checkpoint_timeout_seconds"] > 0
    assert answer["settings"]["max_wal_size_bytes"] >= 2 * 16 << 20
    assert answer["settings"]["wal_compression"] == "off"

    # Both counts see every record; the metrics are read second and may have more.
    total = sum(sizes) + size(answer["other"]) + size(answer["without_relation"])
    assert total <= metric(compute, "weir_compute_wal_bytes_total") <= total * 1.05
    compute.suspend()


def test_what_was_dropped_keeps_its_bytes_and_has_no_name(shared: Engine) -> None:
    compute = shared.compute(shared.create_timeline())
    compute.sql("CREATE TABLE gone AS SELECT i, repeat('y', 300) FROM generate_series(1, 10000) i")
    node = int(compute.sql("SELECT pg_relation_filenode('gone')")[0][0])
    compute.sql("DROP TABLE gone")
    row = next(row for row in told(compute)["relations"] if row["relfilenode"] == node)
    assert size(row) > 10_000 * 300
    assert (row["database"], row["schema"], row["relation"], row["kind"]) == ("appdb", None, None, None)
    compute.suspend()


def test_an_owners_search_path_does_not_mislead_the_superuser_who_looks_for_names(shared: Engine) -> None:
    compute = shared.compute(shared.create_timeline())
    compute.sql("CREATE SCHEMA trap")
    compute.sql("CREATE FUNCTION trap.pg_filenode_relation(oid, oid) RETURNS regclass LANGUAGE plpgsql AS "
                "$$BEGIN RAISE EXCEPTION 'called as %', current_user; END$$")  # fmt: skip
    compute.sql("ALTER DATABASE appdb SET search_path = trap, public, pg_catalog")
    compute.sql("CREATE TABLE public.mine AS SELECT generate_series(1, 1000) AS i")
    assert ("appdb", "mine") in named(told(compute))
    compute.suspend()


def test_checkpoints_are_counted(shared: Engine) -> None:
    compute = shared.compute(shared.create_timeline())
    before = metric(compute, "weir_compute_checkpoints_total")
    compute.sql("CREATE TABLE changed AS SELECT 1")
    with compute.admin() as admin:
        admin.execute("CHECKPOINT")
    compute.sql("INSERT INTO changed VALUES (2)")
    wait_for("the checkpoint to be counted", lambda: metric(compute, "weir_compute_checkpoints_total") == before + 1)
    compute.suspend()
