"""A rollout as it goes on: who has the feature, what it changes, and whether anybody is harmed."""

from boards.panel import RATE, Dashboard, Panel, Query, Row, quantile, rate

_COMMIT = "weir_compute_commit_quorum_seconds_bucket"
_READ = "weir_compute_page_read_seconds_bucket"


def _by_feature(bucket: str, images: int) -> str:
    """p99 over the computes that write page images (1) or leave them to storage (0)."""
    chosen = f"rate({bucket}[{RATE}]) and on (compute_id) weir_compute_full_page_writes == {images}"
    return f"histogram_quantile(0.99, sum by (le) ({chosen}))"


BOARD = Dashboard(
    uid="weir-rollout",
    title="Weir: rollouts",
    about="Computes with image pushdown beside those without, and minors of Postgres. Steps and "
    "verdicts are in the console.",
    rows=(
        Row(
            "Now",
            (
                Panel(
                    "Alerts of rollouts",
                    bad="back_overdue: a compute that was taken back may not write page images yet.",
                    do="the console's page of the rollout names step and compute. See to back_overdue first.",
                    unit="none",
                    queries=[Query("sum by (kind) (weir_rollout_alerts)", "{{kind}}")],
                    kind="stat",
                    width=6,
                    alarm=1,
                ),
                Panel(
                    "Pages that storage made wrongly",
                    bad="1 or more in the last hour.",
                    do="abort the rollout, keep the compute and its WAL, and report it.",
                    unit="none",
                    queries=[
                        Query('sum(increase(weir_compute_audit_reads_total{result="mismatch"}[1h])) or vector(0)')
                    ],
                    kind="stat",
                    width=6,
                    alarm=1,
                ),
                Panel(
                    "Computes by feature",
                    bad="a number that moves although no rollout runs.",
                    do="the reconciler brings computes to what is stored; the audit log has who stored it.",
                    unit="none",
                    queries=[
                        Query("count(weir_compute_full_page_writes == 0) or vector(0)", "storage makes images"),
                        Query("count(weir_compute_full_page_writes == 1) or vector(0)", "Postgres writes images"),
                    ],
                    width=6,
                    stacked=True,
                ),
                Panel(
                    "Computes by minor of Postgres",
                    bad="an old minor that stays: its computes were skipped, or went back.",
                    do="the rollout's members in the console.",
                    unit="none",
                    queries=[Query("count by (version) (weir_compute_postgres_info == 1)", "{{version}}")],
                    width=6,
                    stacked=True,
                ),
            ),
        ),
        Row(
            "Latency, with the feature and without",
            (
                Panel(
                    "Commit, p99",
                    bad="with the feature it is slower than without, for longer than a bake.",
                    do="the verdict weighs it against controls; hold the rollout while you look.",
                    unit="s",
                    queries=[
                        Query(_by_feature(_COMMIT, 0), "storage makes images"),
                        Query(_by_feature(_COMMIT, 1), "Postgres writes images"),
                    ],
                    width=12,
                ),
                Panel(
                    "Page read from storage, p99",
                    bad="with the feature it is slower, and chains are longer.",
                    do="images that wait, below: storage does not keep up with making them.",
                    unit="s",
                    queries=[
                        Query(_by_feature(_READ, 0), "storage makes images"),
                        Query(_by_feature(_READ, 1), "Postgres writes images"),
                    ],
                    width=12,
                ),
            ),
        ),
        Row(
            "Traffic",
            (
                Panel(
                    "Share of page images in WAL",
                    bad="it does not fall as computes get the feature.",
                    do="`GET /computes/ID/wal_by_relation` says which relations still write images.",
                    unit="percentunit",
                    queries=[
                        Query(
                            'sum(weir:wal_bytes:rate{part="image"}) / sum(weir:wal_bytes:rate)',
                            "images",
                        )
                    ],
                ),
                Panel(
                    "WAL",
                    bad="a rise while transactions stay as they are.",
                    do="a compute went back, or checkpoints became more frequent.",
                    unit="Bps",
                    queries=[Query("sum by (part) (weir:wal_bytes:rate)", "{{part}}")],
                    stacked=True,
                ),
                Panel(
                    "Images made by storage",
                    bad="`read` outweighs the others: reads pay for what should have been made before.",
                    do="the project's image policy.",
                    unit="ops",
                    queries=[Query(rate("weir_pageserver_images_made_total", "reason"), "{{reason}}")],
                ),
            ),
        ),
        Row(
            "Errors",
            (
                Panel(
                    "Starts after a crash or a lost quorum",
                    bad="any of a compute that was switched just now.",
                    do="its log; take back that compute alone (`rollback` with scope compute).",
                    unit="ops",
                    queries=[
                        Query(
                            f"{rate('weir_compute_restarts_total', 'endpoint_id', window='5m')} > 0",
                            "{{endpoint_id}}",
                        )
                    ],
                    width=12,
                ),
                Panel(
                    "Operations that failed in 15 minutes",
                    bad="restarts that fail: a minor does not start.",
                    do="`error` of the operation; hold the rollout.",
                    unit="none",
                    queries=[
                        Query(
                            'sum by (kind) (increase(weir_operations_ended_total{status="failed"}[15m])) > 0',
                            "{{kind}}",
                        )
                    ],
                    width=12,
                    warn=1,
                    alarm=3,
                ),
            ),
        ),
        Row(
            "Saturation",
            (
                Panel(
                    "Pages that wait for their image",
                    bad="it grows while the rollout goes on: storage is the limit of this rollout.",
                    do="smaller waves, or a longer pause between them.",
                    unit="none",
                    queries=[Query("topk(5, weir_pageserver_images_pending)", "{{timeline_id}}")],
                ),
                Panel(
                    "WAL since the longest wait for an image began",
                    bad="gigabytes, and growing.",
                    do="as beside it.",
                    unit="bytes",
                    queries=[Query("topk(5, weir_pageserver_image_lag_bytes)", "{{timeline_id}}")],
                ),
                Panel(
                    "Deltas applied to make a page, p99",
                    bad="hundreds.",
                    do="it follows the pages that wait, some minutes later.",
                    unit="none",
                    queries=[Query(quantile(0.99, "weir_compute_page_chain_length", "purpose"), "{{purpose}}")],
                    warn=64,
                ),
            ),
        ),
    ),
)
