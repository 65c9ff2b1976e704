"""The first page at night: is it bad, for whom, and which part is it."""

from boards.panel import Dashboard, Panel, Query, Row, quantile, rate

_PARTS = 'job=~"api|worker|proxy|pageserver|temporal"'

_REQUESTS = "weir_api_requests_total"


def _recorded(share: float, buckets: str) -> str:
    """A quantile of what rules have added up, by region."""
    return f"histogram_quantile({share}, sum by (region_id, le) ({buckets}))"


BOARD = Dashboard(
    uid="weir-fleet",
    title="Weir: fleet",
    about="Alerts, then latency, traffic, errors and saturation of all databases. Begin here.",
    rows=(
        Row(
            "Now",
            (
                Panel(
                    "Pages",
                    bad="one or more: users notice, or will within the hour.",
                    do="read the table of alerts; each has what to do in its description, in "
                    "Prometheus's own page of alerts.",
                    unit="none",
                    queries=[Query('count(ALERTS{alertstate="firing", severity="page"}) or vector(0)')],
                    kind="stat",
                    width=4,
                    alarm=1,
                ),
                Panel(
                    "Parts that do not answer",
                    bad="one or more. Databases that run go on without API, worker and Temporal, "
                    "not without the others.",
                    do="find it in the table (WeirPartDown), and read the end of its log.",
                    unit="none",
                    queries=[Query(f"count(up{{{_PARTS}}} == 0) or vector(0)")],
                    kind="stat",
                    width=4,
                    alarm=1,
                ),
                Panel(
                    "Safekeepers that answer",
                    bad="two: no other one may go. One: commits stand still.",
                    do="start it with the disk that it had. Replace one only while a majority is there.",
                    unit="none",
                    queries=[Query('count(up{job="safekeeper"} == 1) or vector(0)')],
                    kind="stat",
                    width=4,
                    warn=3,
                    alarm=2,
                ),
                Panel(
                    "Computes",
                    bad="fewer take connections than should, for longer than a start takes.",
                    do="the alert WeirComputeDown names them; dashboard Compute, and `reason` of the compute.",
                    unit="none",
                    queries=[
                        Query("count(weir_compute_up == 1) or vector(0)", "take connections"),
                        Query('count(up{job="compute"}) or vector(0)', "should"),
                    ],
                    kind="stat",
                    width=4,
                ),
                Panel(
                    "Alerts that fire",
                    bad="any with the severity page.",
                    do="begin with the oldest of the part lowest in the stack: safekeepers, "
                    "pageserver, compute, proxy.",
                    unit="none",
                    queries=[
                        Query(
                            "sum by (alertname, severity, job, instance, endpoint_id, safekeeper_id, timeline_id) "
                            '(ALERTS{alertstate="firing"})'
                        )
                    ],
                    kind="table",
                    width=8,
                ),
            ),
        ),
        Row(
            "Latency",
            (
                Panel(
                    "Commit until a majority has it on disk",
                    bad="p99 above 50 ms for minutes: users' commits take as long. Above 250 ms somebody is called.",
                    do="dashboard Storage, fsync by safekeeper. One slow disk hurts nobody, two do.",
                    unit="s",
                    queries=[
                        Query(
                            _recorded(share, "weir:commit_quorum_seconds_bucket:rate"),
                            f"{{{{region_id}}}} {name}",
                        )
                        for share, name in ((0.5, "p50"), (0.99, "p99"))
                    ],
                    width=6,
                    warn=0.05,
                    alarm=0.25,
                ),
                Panel(
                    "Page read from storage",
                    bad="p99 above 50 ms: queries on data that the compute does not have are slow.",
                    do="dashboard Storage, requests of the pageserver: long chains, layers that "
                    "are fetched, or a full processor.",
                    unit="s",
                    queries=[
                        Query(
                            _recorded(share, "weir:page_read_seconds_bucket:rate"),
                            f"{{{{region_id}}}} {name}",
                        )
                        for share, name in ((0.5, "p50"), (0.99, "p99"))
                    ],
                    width=6,
                    warn=0.05,
                    alarm=0.5,
                ),
                Panel(
                    "Login by the proxy, and wakes",
                    bad="logins above a second while nothing wakes.",
                    do="a wake is part of the login of whoever waits for it. Else the API is slow: "
                    "the proxy asks it.",
                    unit="s",
                    queries=[
                        Query(quantile(0.99, "weir_proxy_login_seconds", window="5m"), "login p99"),
                        Query(quantile(0.99, "weir_proxy_wake_seconds", window="5m"), "wake p99"),
                    ],
                    width=6,
                    warn=1,
                ),
                Panel(
                    "Requests to the API",
                    bad="p99 above a second.",
                    do="the route in the legend: /fleet/storage asks storage, others the metadata Postgres alone.",
                    unit="s",
                    queries=[
                        Query(
                            f"topk(5, {quantile(0.99, 'weir_api_request_seconds', by='route', window='5m')})",
                            "{{route}}",
                        )
                    ],
                    width=6,
                    warn=1,
                ),
            ),
        ),
        Row(
            "Traffic",
            (
                Panel(
                    "Transactions",
                    bad="a fall that no deployment of the customers explains.",
                    do="connections beside it: clients that are gone, or clients that wait.",
                    unit="ops",
                    queries=[Query("sum by (region_id) (weir:transactions:rate)", "{{region_id}}")],
                    width=6,
                ),
                Panel(
                    "WAL",
                    bad="images make more of it than usual: a rollout went back, or somebody checkpoints.",
                    do="dashboard Rollouts. Much of it altogether: topk(5, sum by (endpoint_id) "
                    "(rate(weir_compute_wal_bytes_total[1m]))).",
                    unit="Bps",
                    queries=[Query("sum by (part) (weir:wal_bytes:rate)", "{{part}}")],
                    width=6,
                    stacked=True,
                ),
                Panel(
                    "Connections at the proxy",
                    bad="many in `login`: they wait for computes or for the API.",
                    do="wakes and logins above; a client without a pool shows as a growing `session`.",
                    unit="none",
                    queries=[Query("sum by (phase) (weir_proxy_connections)", "{{phase}}")],
                    width=6,
                ),
                Panel(
                    "Requests to the API by status",
                    bad="423 that do not end: an operation stands still. 401: somebody guesses keys.",
                    do="open operations of the project; the audit log for 401.",
                    unit="reqps",
                    queries=[Query(rate("weir_api_requests_total", by="status"), "{{status}}")],
                    width=6,
                ),
            ),
        ),
        Row(
            "Errors",
            (
                Panel(
                    "Requests to the API that fail",
                    bad="above 2 %.",
                    do="the API's log by request_id. Metadata Postgres first.",
                    unit="percentunit",
                    queries=[
                        Query(
                            f'sum(rate({_REQUESTS}{{status=~"5.."}}[5m])) / sum(rate({_REQUESTS}[5m]))',
                            "5xx",
                        )
                    ],
                    width=6,
                    warn=0.005,
                    alarm=0.02,
                ),
                Panel(
                    "Connections ended, by why",
                    bad="refused or compute_broke stand out.",
                    do="the proxy's log has endpoint and reason of each.",
                    unit="cps",
                    queries=[Query(rate("weir_proxy_connections_ended_total", by="why", window="5m"), "{{why}}")],
                    width=6,
                ),
                Panel(
                    "Operations that failed in 15 minutes",
                    bad="three or more of a kind.",
                    do="`error` of the operations; the same one everywhere is the installation's fault.",
                    unit="none",
                    queries=[
                        Query(
                            'sum by (kind) (increase(weir_operations_ended_total{status="failed"}[15m])) > 0',
                            "{{kind}}",
                        )
                    ],
                    width=6,
                    warn=1,
                    alarm=3,
                ),
                Panel(
                    "Requests to internal ports that were refused",
                    bad="any that lasts: a part with an old token, clocks that differ, or a stranger.",
                    do="expired, not_yet: clocks and the service that renews tokens. Others: the "
                    "part's log says for what.",
                    unit="reqps",
                    queries=[
                        Query(
                            f"{rate('weir_token_refusals_total', by='job, reason', window='5m')} > 0",
                            "{{job}} {{reason}}",
                        )
                    ],
                    width=6,
                ),
            ),
        ),
        Row(
            "Saturation",
            (
                Panel(
                    "Commits that wait",
                    bad="a number that stays: no majority takes their WAL.",
                    do="safekeepers that answer, above; then WAL room of the branch in dashboard Storage.",
                    unit="none",
                    queries=[Query("topk(5, weir_compute_commits_waiting > 0)", "{{endpoint_id}}")],
                    width=6,
                ),
                Panel(
                    "Free disk of safekeepers",
                    bad="below twice the reserve (4 GiB by default): branches are slowed, then stopped.",
                    do="dashboard Storage, WAL that is kept: whose, and why storage has not taken it.",
                    unit="bytes",
                    queries=[Query("weir_safekeeper_disk_free_bytes", "{{safekeeper_id}}")],
                    width=6,
                    warn=20e9,
                    alarm=4e9,
                ),
                Panel(
                    "Pooled clients that wait for a connection",
                    bad="a number that stays: transactions of others hold all connections of the pool.",
                    do="long transactions of the endpoint (pg_stat_activity); more `pool_size`, if "
                    "the compute has room.",
                    unit="none",
                    queries=[Query("weir_proxy_pool_clients_waiting", "waiting")],
                    width=6,
                    warn=10,
                ),
                Panel(
                    "Time until the proxy's certificate expires",
                    bad="below 14 days. After the last, clients that check certificates do not connect.",
                    do="replace the two files; the proxy reads them again by itself.",
                    unit="s",
                    queries=[Query("weir_proxy_certificate_not_after_timestamp_seconds - time()", "left")],
                    kind="stat",
                    width=6,
                    warn=14 * 86400,
                    alarm=2 * 86400,
                ),
            ),
        ),
    ),
)
