"""What `api.py --cost` makes of what it measured."""

from pathlib import Path
from random import Random
from typing import cast

import pytest
from weirbench import api_seed, reconciler_seed
from weirbench.api_cost import Client, Counted, summary
from weirbench.open_loop import Request

LOG = """\
2026-01-01 00:00:00.000 UTC [7] LOG:  statement: BEGIN ISOLATION LEVEL READ COMMITTED;
2026-01-01 00:00:00.000 UTC [7] LOG:  execute __asyncpg_stmt_4__: SELECT projects.id, ': LOG:  statement: '
\tFROM projects WHERE projects.id = $1::VARCHAR
2026-01-01 00:00:00.000 UTC [7] DETAIL:  parameters: $1 = 'LOG:  no statement'
2026-01-01 00:00:00.000 UTC [7] LOG:  checkpoint starting: time
2026-01-01 00:00:00.000 UTC [7] LOG:  statement: COMMIT;
"""


class _Writes:
    """In place of a client: each request has the server write so many of the log's lines."""

    def __init__(self, log: Path, texts: list[str]) -> None:
        self._log = log
        self._texts = iter(texts)

    def begin(self) -> None: ...

    def send(self, request: Request) -> None:
        del request
        with self._log.open("a") as file:
            file.write(next(self._texts))


def test_the_median_of_rounds_counts_and_the_mix_by_its_weights() -> None:
    costs = {"read": [900.0, 1_000.0, 9_000.0], "write": [4_000.0, 3_000.0, 2_000.0]}
    found = summary(costs, {"read": 3, "write": 1, "not measured": 100})
    assert found == {"a_request": 1_500, "by_request": {"read": 1_000, "write": 3_000}}


def test_a_request_needs_the_fewest_statements_that_were_seen(tmp_path: Path) -> None:
    log = tmp_path / "postgres.log"
    log.write_text(LOG)
    client = cast("Client", _Writes(log, [LOG + LOG, LOG, LOG + LOG + LOG]))
    request = Request("a read", "read", "GET", "/")
    assert Counted("postgresql+psycopg://nobody@127.0.0.1:1/none", log).fewest(client, [request] * 3) == 3


@pytest.mark.parametrize("count", [1, 20, 200])
def test_each_kind_of_request_is_sent_and_weighted(count: int) -> None:
    mix = api_seed.Mix(reconciler_seed.fleet_of(50), Random(1))  # noqa: S311
    groups = list(mix.of_each(count))
    assert [requests[0].what for requests in groups] == list(mix.weights())
    assert sum(mix.weights().values()) == 100
    for requests in groups:
        assert len({request.what for request in requests}) == 1
        assert len(requests) == (max(1, count // 10) if requests[0].what == "start a compute" else count)
