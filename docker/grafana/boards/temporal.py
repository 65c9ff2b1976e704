"""Temporal's server, on which changes of databases and rollouts run. Databases themselves do without it."""

from boards.panel import Dashboard, Panel, Query, Row, quantile, rate

# Temporal is scraped every five seconds.
_WINDOW = "1m"
_OURS = 'namespace="default"'

BOARD = Dashboard(
    uid="weir-temporal",
    title="Weir: Temporal",
    about="Temporal's server by its own figures (one process, scraped every five seconds).",
    rows=(
        Row(
            "Now",
            (
                Panel(
                    "Answers",
                    bad="0: nothing can be changed, and no suspended database wakes. What runs goes on.",
                    do="the end of its log. It needs its Postgres.",
                    unit="none",
                    queries=[Query('max(up{job="temporal"})')],
                    kind="stat",
                    width=6,
                    warn=1,
                    alarm=0.5,
                ),
                Panel(
                    "Workers that ask for work",
                    bad="0: operations wait.",
                    do="the worker: does it answer, and does its log say that it reaches Temporal?",
                    unit="none",
                    queries=[Query('max(up{job="worker"})')],
                    kind="stat",
                    width=6,
                    warn=1,
                    alarm=0.5,
                ),
                Panel(
                    "Workflows that ended",
                    bad="`failed` or `timeout`: operations report their failure and succeed as "
                    "workflows; this is worse.",
                    do="the workflow's history (`temporal workflow show`); it is a bug of Weir's to be reported.",
                    unit="ops",
                    queries=[
                        Query(rate(f"workflow_{how}", window="5m", matchers=_OURS), how)
                        for how in ("success", "failed", "timeout", "terminate")
                    ],
                    width=12,
                ),
            ),
        ),
        Row(
            "Latency",
            (
                Panel(
                    "Requests, p99",
                    bad="above a second for what is no long poll.",
                    do="persistence beside it: Temporal waits for its Postgres.",
                    unit="s",
                    queries=[
                        Query(
                            "topk(8, "
                            + quantile(
                                0.99, "service_latency", "operation", 'operation!~"Poll.*|.*LongPoll.*"', _WINDOW
                            )
                            + ")",
                            "{{operation}}",
                        )
                    ],
                    width=12,
                    warn=1,
                ),
                Panel(
                    "Its Postgres, p99",
                    bad="above 100 ms.",
                    do="the metadata Postgres: disk, locks, autovacuum; it shares it with Weir's own metadata.",
                    unit="s",
                    queries=[
                        Query(
                            f"topk(8, {quantile(0.99, 'persistence_latency', 'operation', window=_WINDOW)})",
                            "{{operation}}",
                        )
                    ],
                    width=12,
                    warn=0.1,
                ),
            ),
        ),
        Row(
            "Traffic",
            (
                Panel(
                    "Requests",
                    bad="a fall to nothing of polls: no worker is there.",
                    do="the worker.",
                    unit="reqps",
                    queries=[
                        Query(f"topk(8, {rate('service_requests', 'operation', window=_WINDOW)})", "{{operation}}")
                    ],
                    width=12,
                ),
                Panel(
                    "Requests to its Postgres",
                    bad="a rise without one of requests.",
                    do="timers and retries: which workflows are open (`temporal workflow list`)?",
                    unit="reqps",
                    queries=[
                        Query(
                            f"topk(8, {rate('persistence_requests', 'operation', window=_WINDOW)})", "{{operation}}"
                        )
                    ],
                    width=12,
                ),
            ),
        ),
        Row(
            "Errors",
            (
                Panel(
                    "Requests that fail",
                    bad="any that last, of operations that are Weir's.",
                    do="the legend has operation and kind of error; Temporal's log has the rest.",
                    unit="reqps",
                    queries=[
                        Query(
                            f"{rate('service_error_with_type', 'operation, error_type', window='5m')} > 0",
                            "{{operation}} {{error_type}}",
                        )
                    ],
                    width=12,
                ),
                Panel(
                    "Its Postgres fails",
                    bad="any that last.",
                    do="is the metadata Postgres there, and has it connections left (max_connections 200)?",
                    unit="reqps",
                    queries=[
                        Query(
                            f"{rate('persistence_error_with_type', 'operation, error_type', window='5m')} > 0",
                            "{{operation}} {{error_type}}",
                        )
                    ],
                    width=12,
                ),
            ),
        ),
    ),
)
