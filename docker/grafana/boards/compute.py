"""One database: what its clients feel, and which resource it is short of."""

from boards.panel import RATE, Dashboard, Panel, Query, Row, Variable, quantile, rate

_ONE = 'endpoint_id="$endpoint"'


def _own(metric: str) -> str:
    return f"{metric}{{{_ONE}}}"


BOARD = Dashboard(
    uid="weir-compute",
    title="Weir: compute",
    about="One endpoint's compute. Choose it above; alerts name it as endpoint_id.",
    variables=(Variable("endpoint", "weir_compute_up", "endpoint_id"),),
    rows=(
        Row(
            "Now",
            (
                Panel(
                    "Takes connections",
                    bad="0 for longer than a start takes.",
                    do="`reason` of GET /api/v2/computes/ID; then its log.",
                    unit="none",
                    queries=[Query(_own("weir_compute_up"))],
                    kind="stat",
                    width=4,
                    warn=1,
                    alarm=0.5,
                ),
                Panel(
                    "Writes are refused",
                    bad="1: sessions are read-only.",
                    do="`reason` in its status: WAL that storage has not taken, a quota, or WAL "
                    "that storage does not know.",
                    unit="none",
                    queries=[Query(_own("weir_compute_writes_refused"))],
                    kind="stat",
                    width=4,
                    alarm=1,
                ),
                Panel(
                    "Pages that storage made wrongly",
                    bad="1 or more. This is what must never be.",
                    do="stop rollouts, keep the compute running and its WAL, and report it.",
                    unit="none",
                    queries=[
                        Query(f'sum(increase(weir_compute_audit_reads_total{{{_ONE},result="mismatch"}}[$__range]))')
                    ],
                    kind="stat",
                    width=4,
                    alarm=1,
                ),
                Panel(
                    "Starts after a crash or a lost quorum",
                    bad="more than one.",
                    do="the compute's log says why the run before ended.",
                    unit="none",
                    queries=[Query(f"sum(increase(weir_compute_restarts_total{{{_ONE}}}[$__range]))")],
                    kind="stat",
                    width=4,
                    warn=1,
                    alarm=3,
                ),
                Panel(
                    "Safekeepers that take its WAL",
                    bad="below two: no commit is acknowledged.",
                    do="do they answer (dashboard Fleet)? If so, the compute's log has what each one says.",
                    unit="none",
                    queries=[Query(f"sum({_own('weir_compute_safekeeper_connected')})")],
                    kind="stat",
                    width=4,
                    warn=3,
                    alarm=2,
                ),
                Panel(
                    "Time to be read without a majority",
                    bad="below four of ten seconds: the compute is about to stop, rather than show "
                    "rows that may be old.",
                    do="the safekeepers: a majority must vouch for it again.",
                    unit="s",
                    queries=[Query(_own("weir_compute_read_lease_remaining_seconds"))],
                    kind="stat",
                    width=4,
                    warn=7,
                    alarm=4,
                ),
            ),
        ),
        Row(
            "Latency",
            (
                Panel(
                    "Commit until a majority has it on disk",
                    bad="p99 above 50 ms.",
                    do="is it all computes (dashboard Fleet) or this one? This one alone: WAL held "
                    "back or paced, below.",
                    unit="s",
                    queries=[
                        Query(quantile(share, "weir_compute_commit_quorum_seconds", matchers=_ONE), name)
                        for share, name in ((0.5, "p50"), (0.99, "p99"))
                    ],
                    warn=0.05,
                    alarm=0.25,
                ),
                Panel(
                    "Page read from storage, p99",
                    bad="`miss` above 50 ms: queries wait for pages.",
                    do="chain length beside it: long chains are slow pages. Else dashboard Storage.",
                    unit="s",
                    queries=[Query(quantile(0.99, "weir_compute_page_read_seconds", "purpose", _ONE), "{{purpose}}")],
                    warn=0.05,
                    alarm=0.5,
                ),
                Panel(
                    "Deltas applied to make a page, p99",
                    bad="hundreds: images are not made where reads need them.",
                    do="dashboard Rollouts, images that wait; the project's image policy.",
                    unit="none",
                    queries=[Query(quantile(0.99, "weir_compute_page_chain_length", "purpose", _ONE), "{{purpose}}")],
                    warn=64,
                ),
            ),
        ),
        Row(
            "Traffic",
            (
                Panel(
                    "Transactions",
                    bad="aborts that outnumber commits.",
                    do="the application's errors; deadlocks and timeouts are in the compute's Postgres log.",
                    unit="ops",
                    queries=[Query(rate("weir_compute_transactions_total", "result", _ONE), "{{result}}")],
                    width=6,
                ),
                Panel(
                    "WAL",
                    bad="near the project's limit: commits wait for their turn.",
                    do="where it comes from: GET /computes/ID/wal_by_relation.",
                    unit="Bps",
                    queries=[Query(rate("weir_compute_wal_bytes_total", "part", _ONE), "{{part}}")],
                    width=6,
                    stacked=True,
                ),
                Panel(
                    "Pages from storage",
                    bad="a rate that stays high after a start: the working set is larger than the compute's cache.",
                    do="evictions beside it. More `cache_mib`, or a larger compute.",
                    unit="ops",
                    queries=[
                        Query(rate("weir_compute_volume_pages_fetched_total", matchers=_ONE), "fetched"),
                        Query(
                            rate("weir_compute_volume_pages_read_ahead_total", matchers=_ONE), "ahead of the reader"
                        ),
                        Query(rate("weir_compute_volume_pages_evicted_total", matchers=_ONE), "evicted"),
                        Query(
                            rate("weir_compute_volume_pages_not_kept_total", matchers=_ONE),
                            "not kept: the disk is full",
                        ),
                    ],
                    width=6,
                ),
                Panel(
                    "Connections",
                    bad="near max_connections.",
                    do="clients should come by the pooled name (-pooler).",
                    unit="none",
                    queries=[Query(_own("weir_compute_connections"), "open")],
                    width=6,
                ),
            ),
        ),
        Row(
            "Errors",
            (
                Panel(
                    "Commits that no majority had confirmed",
                    bad="any: a client was told of success that can be lost (canceled), or has had no answer.",
                    do="why did they wait? Safekeepers at that time.",
                    unit="ops",
                    queries=[Query(rate("weir_compute_commits_unconfirmed_total", "cause", _ONE, "5m"), "{{cause}}")],
                    width=12,
                ),
                Panel(
                    "File operations that failed for Postgres",
                    bad="any: queries fail with I/O errors, or the local disk is full.",
                    do="the compute's log names file and error; disk of the worker's machine.",
                    unit="ops",
                    queries=[
                        Query(
                            rate("weir_compute_volume_failed_operations_total", matchers=_ONE, window="5m"), "failed"
                        )
                    ],
                    width=12,
                ),
            ),
        ),
        Row(
            "Saturation",
            (
                Panel(
                    "WAL behind",
                    bad="`storage` grows without end: reads of changed pages wait. `majority` grows: commits wait.",
                    do="dashboard Storage for the first, safekeepers for the second.",
                    unit="bytes",
                    queries=[
                        Query(_own("weir_compute_ingest_lag_bytes"), "storage"),
                        Query(_own("weir_compute_quorum_lag_bytes"), "majority"),
                        Query(_own("weir_compute_safekeeper_lag_bytes"), "safekeeper {{safekeeper}}"),
                    ],
                    warn=256e6,
                    alarm=1e9,
                ),
                Panel(
                    "Room for WAL at the safekeepers",
                    bad="it falls: at 0 writes stop.",
                    do="storage has not taken the WAL; alerts WeirTimelineStopped, WeirUploadsFail say why.",
                    unit="bytes",
                    queries=[Query(_own("weir_compute_wal_room_bytes"), "room")],
                    warn=4e9,
                    alarm=2e9,
                ),
                Panel(
                    "Share of the time that WAL waits",
                    bad="above a tenth. `limit` is the project's own limit, `held back` that of the "
                    "safekeepers' room.",
                    do="raise the project's wal_bytes_per_second, or mend storage.",
                    unit="percentunit",
                    queries=[
                        Query(f"sum(rate(weir_compute_wal_paced_seconds_total{{{_ONE}}}[{RATE}]))", "limit"),
                        Query(f"sum(rate(weir_compute_wal_held_back_seconds_total{{{_ONE}}}[{RATE}]))", "held back"),
                    ],
                    warn=0.1,
                ),
                Panel(
                    "Commits that wait",
                    bad="a number that stays.",
                    do="safekeepers that take its WAL, above.",
                    unit="none",
                    queries=[Query(_own("weir_compute_commits_waiting"), "waiting")],
                ),
                Panel(
                    "Duration of the last start, by part",
                    bad="seconds: clients of a suspended database wait as long.",
                    do="the longest part: bundle and pages are storage, the rest is Postgres's recovery.",
                    unit="s",
                    queries=[Query(_own("weir_compute_start_seconds"), "{{part}}")],
                    warn=2,
                ),
                Panel(
                    "Pages kept on the local disk",
                    bad="at cache_mib all the time, with evictions.",
                    do="more cache_mib if the machine has the disk.",
                    unit="bytes",
                    queries=[Query(_own("weir_compute_volume_clean_bytes"), "clean")],
                ),
            ),
        ),
    ),
)
