"""Indexes of every access method on a compute without page images: what they answer after a start from storage,
and on a branch, is what a scan of the table answers."""

from __future__ import annotations

from typing import Any

import pytest
from harness import Compute, Engine
from psycopg import sql
from workloads import amcheck

# Extensions need the admin; they belong to the database, so a start and a branch have them too.
EXTENSIONS = ("pg_trgm", "btree_gin", "btree_gist", "bloom", "intarray")

TABLE = """CREATE TABLE things (
    id int PRIMARY KEY, word text, tags int[], doc jsonb, place point, span int4range, address inet, score int
)"""

FILL = """INSERT INTO things
    SELECT n, md5(n::text), ARRAY[n % 97, n % 89, n % 13], jsonb_build_object('k' || n % 50, n, 'deep', jsonb_build_array(n % 7)),
           point(n % 331, n % 577), int4range(n % 1000, n % 1000 + n % 17 + 1),
           ('10.' || n % 200 || '.' || n % 251 || '.' || n % 241)::inet, n % 1009
    FROM generate_series({first}, {last}) n"""  # noqa: E501

INDEXES = {
    "hash_word": "USING hash (word)",
    "gin_tags": "USING gin (tags)",
    "gin_doc": "USING gin (doc jsonb_path_ops)",
    "gin_doc_slow": "USING gin (doc) WITH (fastupdate = off)",
    "gin_trigrams": "USING gin (word gin_trgm_ops)",
    "gin_score": "USING gin (score)",
    "gist_tags": "USING gist (tags gist__int_ops)",
    "gist_place": "USING gist (place)",
    "gist_span": "USING gist (span, score)",
    "gist_trigrams": "USING gist (word gist_trgm_ops)",
    "spgist_place": "USING spgist (place)",
    "spgist_kd": "USING spgist (place kd_point_ops)",
    "spgist_word": "USING spgist (word)",
    "spgist_address": "USING spgist (address)",
    "brin_id": "USING brin (id) WITH (pages_per_range = 4, autosummarize = on)",
    "brin_span": "USING brin (span range_inclusion_ops) WITH (pages_per_range = 2)",
    "brin_score_bloom": "USING brin (score int4_bloom_ops) WITH (pages_per_range = 8)",
    "bloom_score": "USING bloom (score, id)",
    "btree_doc": "USING btree (doc)",
}

# For each access method, conditions that only its indexes serve.
CONDITIONS = {
    "hash_word": "word = md5('7777')",
    # intarray has an operator of that name too.
    "gin_tags": "tags OPERATOR(pg_catalog.@>) ARRAY[5, 7]",
    "gist_tags": "tags @> ARRAY[5, 7]",
    "gin_doc": """doc @> '{"deep": [3]}'""",
    "gin_doc_slow": "doc ? 'k17'",
    "gin_trigrams": "word LIKE '%abc%'",
    "gin_score": "score = 500",
    "gist_place": "place <@ box '(10,10),(60,90)'",
    "gist_span": "span && int4range(500, 505)",
    "gist_trigrams": "word LIKE '%fed%'",
    "spgist_place": "place <@ box '(100,100),(160,190)'",
    "spgist_kd": "place <@ box '(200,300),(260,390)'",
    "spgist_word": "word >= 'aa' AND word < 'ab'",
    "spgist_address": "address << '10.7.0.0/16'",
    "brin_id": "id BETWEEN 2000 AND 2500",
    "brin_span": "span @> 321",
    "brin_score_bloom": "score = 17",
    "bloom_score": "score = 99",
    "btree_doc": """doc >= '{"deep": [1]}'""",
}


def answer(session: Any, condition: str, index: str | None) -> tuple[int, int]:
    """Rows and the sum of their ids, found by a scan of the table or by `index` alone: the other indexes are
    hidden for the length of a transaction, so that the planner has no choice."""
    with session.transaction(force_rollback=True):
        session.execute("SET LOCAL jit = off")
        session.execute("SET LOCAL enable_seqscan = off" if index else "SET LOCAL enable_indexscan = off")
        if index is None:
            session.execute("SET LOCAL enable_bitmapscan = off; SET LOCAL enable_indexonlyscan = off")
        else:
            session.execute(
                """UPDATE pg_index SET indisvalid = false
                   WHERE indrelid = 'things'::regclass AND indexrelid <> %s::regclass""",
                (index,),
            )
        query = sql.SQL("SELECT count(*), coalesce(sum(id), 0) FROM things WHERE " + condition)
        if index is not None:
            plan = "\n".join(line for (line,) in session.execute(sql.SQL("EXPLAIN ") + query))
            assert index in plan, f"the plan does not use {index}:\n{plan}"
        return session.execute(query).fetchone()


def check(compute: Compute) -> None:
    wrong = []
    with compute.admin() as session:
        for index, condition in CONDITIONS.items():
            scanned, found = answer(session, condition, None), answer(session, condition, index)
            assert scanned[0] > 0, f"nothing answers {condition}: the check would prove nothing"
            if scanned != found:
                wrong.append(f"{index}: {condition}: table {scanned}, index {found}")
    assert wrong == []
    amcheck(compute)


def change(compute: Compute) -> None:
    """Inserts, updates that move index entries, deletions, aborted work and vacuums, each on every index."""
    compute.sql(FILL.format(first=1, last=6000))
    compute.sql("UPDATE things SET word = md5(word), score = score + 1 WHERE id % 3 = 0")
    compute.sql("UPDATE things SET place = point(id % 100, id % 50), span = int4range(id, id + 3) WHERE id % 5 = 0")
    compute.sql("DELETE FROM things WHERE id BETWEEN 3000 AND 3900 OR id % 11 = 0")
    with compute.connect(autocommit=False) as session:
        session.execute(FILL.format(first=6001, last=7000))
        session.rollback()
    compute.sql("VACUUM things")
    compute.sql(FILL.format(first=7001, last=12000))
    compute.sql("UPDATE things SET tags = tags || id, doc = doc || '{\"new\": 1}' WHERE id % 7 = 0")
    compute.sql("DELETE FROM things WHERE id % 2 = 0 AND id > 8000")
    with compute.admin() as session:
        session.execute("SELECT gin_clean_pending_list('gin_tags'), brin_summarize_new_values('brin_id')")
        session.execute("SELECT brin_desummarize_range('brin_id', 0)")
    compute.sql("VACUUM things")


@pytest.mark.parametrize("full_page_writes", [False, True], ids=["images off", "images on"])
def test_every_kind_of_index_answers_as_the_table_does(shared: Engine, full_page_writes: bool) -> None:
    timeline = shared.create_timeline()
    compute = shared.compute(timeline, full_page_writes=full_page_writes)
    with compute.admin() as session:
        for extension in EXTENSIONS:
            session.execute(sql.SQL("CREATE EXTENSION {}").format(sql.Identifier(extension)))
    compute.sql(TABLE)
    for name, definition in INDEXES.items():
        compute.sql(f"CREATE INDEX {name} ON things {definition}")
    change(compute)
    check(compute)
    shared.wait_ingested(timeline, compute.status()["commit_lsn"])
    branch = shared.branch(timeline)
    compute.kill9()

    started = shared.compute(timeline, full_page_writes=full_page_writes)
    check(started)
    started.sql(FILL.format(first=20001, last=23000))
    started.sql("DELETE FROM things WHERE id < 1500")
    started.sql("VACUUM things")
    check(started)
    started.suspend()

    on_branch = shared.compute(branch, full_page_writes=full_page_writes)
    check(on_branch)
    on_branch.suspend()
