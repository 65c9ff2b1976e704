"""Safekeepers and pageserver: where WAL stands still, and what reads wait for."""

from boards.panel import Dashboard, Panel, Query, Row, quantile, rate

# Pages that a read found made, and those that it made.
_FOUND, _MADE = "weir_pageserver_page_cache_hits_total", "weir_pageserver_page_cache_misses_total"


def _top(expr: str) -> str:
    return f"topk(5, {expr})"


BOARD = Dashboard(
    uid="weir-storage",
    title="Weir: storage",
    about="WAL on its way: safekeepers, the pageserver, the object store. Lines are those that stand out.",
    rows=(
        Row(
            "Now",
            (
                Panel(
                    "Timelines that take in no WAL",
                    bad="one or more: it met WAL that it cannot redo.",
                    do="`reason` in GET /api/v2/fleet/storage. Writes of the branch stop once safekeepers are full.",
                    unit="none",
                    queries=[Query("sum(weir_pageserver_timeline_stopped) or vector(0)")],
                    kind="stat",
                    width=6,
                    alarm=1,
                ),
                Panel(
                    "The object store has taken nothing for",
                    bad="more than five minutes.",
                    do="the pageserver's log has its answer: keys, room, or no way there.",
                    unit="s",
                    queries=[Query("max(weir_pageserver_uploads_failing_seconds) or vector(0)")],
                    kind="stat",
                    width=6,
                    warn=60,
                    alarm=300,
                ),
                Panel(
                    "Sick members of logs",
                    bad="more than one safekeeper: some logs may have one good member left.",
                    do="docs/operating.md, sick members.",
                    unit="none",
                    queries=[
                        Query(
                            "sum by (safekeeper_id, kind) (weir_safekeeper_sick_members) > 0",
                            "{{safekeeper_id}} {{kind}}",
                        )
                    ],
                    kind="stat",
                    width=6,
                    alarm=1,
                ),
                Panel(
                    "Damaged WAL",
                    bad="above 0 for half an hour: it is not repaired by itself.",
                    do="replace that safekeeper.",
                    unit="bytes",
                    queries=[Query("sum by (safekeeper_id) (weir_safekeeper_damaged_bytes)", "{{safekeeper_id}}")],
                    kind="stat",
                    width=6,
                    alarm=1,
                ),
            ),
        ),
        Row(
            "Latency",
            (
                Panel(
                    "Fsync of safekeepers, p99",
                    bad="above 10 ms on two of them: it is every commit's time.",
                    do="what else uses the disk? A disk that is slow alone: replace the safekeeper.",
                    unit="s",
                    queries=[
                        Query(quantile(0.99, "weir_safekeeper_fsync_seconds", "safekeeper_id"), "{{safekeeper_id}}")
                    ],
                    warn=0.01,
                    alarm=0.1,
                ),
                Panel(
                    "Requests of the pageserver, p99",
                    bad="`pages` above 50 ms.",
                    do="waiting for WAL (lag), long chains, or layers that are fetched: the panels below.",
                    unit="s",
                    queries=[Query(quantile(0.99, "weir_pageserver_request_seconds", "request"), "{{request}}")],
                    warn=0.05,
                    alarm=0.5,
                ),
                Panel(
                    "Deltas applied to make a page, p99",
                    bad="hundreds for a timeline.",
                    do="images that wait, dashboard Rollouts.",
                    unit="none",
                    queries=[
                        Query(
                            _top(quantile(0.99, "weir_pageserver_read_chain_length", "timeline_id")),
                            "{{timeline_id}}",
                        )
                    ],
                    warn=64,
                ),
            ),
        ),
        Row(
            "Traffic",
            (
                Panel(
                    "WAL taken in",
                    bad="the pageserver takes less than safekeepers write, for minutes.",
                    do="ingest is braked or waits for memory: saturation, below.",
                    unit="Bps",
                    queries=[
                        Query(
                            rate("weir_safekeeper_wal_written_bytes_total", "safekeeper_id"),
                            "safekeeper {{safekeeper_id}}",
                        ),
                        Query(rate("weir_pageserver_wal_ingested_bytes_total"), "pageserver"),
                    ],
                ),
                Panel(
                    "Requests of the pageserver",
                    bad="a rise without one of transactions: computes have started, or read ahead in vain.",
                    do="dashboard Compute, pages from storage, of the computes that started.",
                    unit="reqps",
                    queries=[Query(rate("weir_pageserver_request_seconds_count", "request"), "{{request}}")],
                ),
                Panel(
                    "Layers written",
                    bad="compaction writes many times what is flushed, for hours.",
                    do="layers of level 0: compaction is behind.",
                    unit="Bps",
                    queries=[
                        Query(rate("weir_pageserver_flushed_bytes_total", window="5m"), "flushed"),
                        Query(
                            rate("weir_pageserver_compaction_bytes_total", "level", 'direction="written"', "5m"),
                            "compacted, {{level}}",
                        ),
                        Query(rate("weir_pageserver_image_bytes_total", window="5m"), "images"),
                    ],
                ),
            ),
        ),
        Row(
            "Errors",
            (
                Panel(
                    "Requests of the pageserver that fail",
                    bad="any that last.",
                    do="the pageserver's log has timeline and reason.",
                    unit="reqps",
                    queries=[
                        Query(rate("weir_pageserver_request_errors_total", "request", window="5m"), "{{request}}")
                    ],
                    width=6,
                ),
                Panel(
                    "Appends without room",
                    bad="any: the branch's writes are held, then refused.",
                    do="WAL that is kept, below: whose, and what it waits for.",
                    unit="ops",
                    queries=[
                        Query(
                            rate("weir_safekeeper_appends_without_room_total", "safekeeper_id", window="5m"),
                            "{{safekeeper_id}}",
                        )
                    ],
                    width=6,
                ),
                Panel(
                    "Offloading of WAL, by outcome",
                    bad="failed, damaged, conflict or panicked that last.",
                    do="the safekeeper's log. Until it goes on, WAL is on the safekeepers alone.",
                    unit="ops",
                    queries=[Query(rate("weir_safekeeper_offloads_total", "outcome", window="5m"), "{{outcome}}")],
                    width=6,
                ),
                Panel(
                    "Histories that are refused",
                    bad="any: a compute has lacked what is committed here.",
                    do="`weir log show` compares the logs; docs/operating.md, diverged.",
                    unit="ops",
                    queries=[
                        Query(
                            rate("weir_safekeeper_diverged_total", "safekeeper_id", window="5m"), "{{safekeeper_id}}"
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
                    "WAL that is kept",
                    bad="a timeline above 8 GB: half of what safekeepers take of one branch.",
                    do="which position stands still: the panel beside it.",
                    unit="bytes",
                    queries=[
                        Query(_top("max by (timeline_id) (weir_safekeeper_wal_kept_bytes)"), "{{timeline_id}}"),
                    ],
                    warn=8e9,
                    alarm=14e9,
                ),
                Panel(
                    "Behind the last commit",
                    bad="`ingested`: the pageserver is slow. `remote_consistent`: uploads. "
                    "`offloaded`: the WAL's own upload.",
                    do="the pageserver's log, the object store, the safekeepers' log, in that order.",
                    unit="bytes",
                    queries=[
                        Query(
                            "topk(5, max by (timeline_id, position) (max by (timeline_id) "
                            '(weir_safekeeper_position_bytes{position="commit"}) - on (timeline_id) group_right '
                            'max by (timeline_id, position) (weir_safekeeper_position_bytes{position=~"ingested|'
                            'remote_consistent|offloaded"})))',
                            "{{timeline_id}} {{position}}",
                        )
                    ],
                ),
                Panel(
                    "Free disk of safekeepers",
                    bad="below twice the reserve: branches that keep much are slowed, then stopped.",
                    do="WAL that is kept, above, or more disk.",
                    unit="bytes",
                    queries=[Query("weir_safekeeper_disk_free_bytes", "{{safekeeper_id}}")],
                    warn=20e9,
                    alarm=4e9,
                ),
                Panel(
                    "Share of the time that ingest is braked",
                    bad="above a tenth for minutes: compaction is behind.",
                    do="layers of level 0; processors of the pageserver's machine.",
                    unit="percentunit",
                    queries=[
                        Query(
                            _top(f"{rate('weir_pageserver_ingest_braked_milliseconds_total', 'timeline_id')} / 1000"),
                            "{{timeline_id}}",
                        )
                    ],
                    warn=0.1,
                ),
                Panel(
                    "Layers of level 0",
                    bad="dozens of a timeline, and growing.",
                    do="compaction does not keep up: processors, or a bulk load that will end.",
                    unit="none",
                    queries=[Query(_top("weir_pageserver_l0_layers"), "{{timeline_id}}")],
                    warn=20,
                ),
                Panel(
                    "Memory for WAL that is in no layer yet",
                    bad="near half of memory_mib (1 GiB by default): ingest waits.",
                    do="uploads that fail; else give the pageserver more memory.",
                    unit="bytes",
                    queries=[Query("weir_pageserver_memory_layers_bytes", "in use")],
                    warn=768e6,
                    alarm=1024e6,
                ),
                Panel(
                    "Tasks that kept a worker thread",
                    bad="any that last: others on that thread wait.",
                    do="the task's name in the legend; report it with the log of that time.",
                    unit="ops",
                    queries=[
                        Query(
                            f"{rate('weir_worker_stalls_total', 'job, instance, task', window='5m')} > 0",
                            "{{job}} {{task}}",
                        )
                    ],
                ),
                Panel(
                    "Pages found as they had been made",
                    bad="a fall beside slower requests.",
                    do="page_cache_mib, where the working set has grown.",
                    unit="percentunit",
                    queries=[
                        Query(
                            f"sum(rate({_FOUND}[5m])) / (sum(rate({_FOUND}[5m])) + sum(rate({_MADE}[5m])))",
                            "found",
                        )
                    ],
                ),
                Panel(
                    "Layers fetched and given back",
                    bad="both at once, for long: the local disk for layers is too small.",
                    do="layer_cache_mib.",
                    unit="ops",
                    queries=[
                        Query(rate("weir_pageserver_layers_fetched_total", window="5m"), "fetched"),
                        Query(rate("weir_pageserver_layers_evicted_total", window="5m"), "given back"),
                    ],
                ),
            ),
        ),
    ),
)
