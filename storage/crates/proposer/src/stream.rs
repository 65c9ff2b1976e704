//! The compute's Postgres as the source of WAL, and what it is told in return.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, bail};
use pg_types::Lsn;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::core::Shared;
use crate::follow::Follower;
use crate::pace::Due;
use crate::replication::{Event, Reader, Replication, StandbyStatus, Writer};
use crate::running::Running;
use crate::{Fatal, FpwChange, PgConn, Positions, room};

/// WAL of commits that come while others are under way stays with Postgres for at most this long, and is then read and
/// sent together.
const GATHER_PERIOD: Duration = Duration::from_millis(2);
/// After a piece of WAL of so many bytes, Postgres's next one is read at once: nothing is left in the socket to gather.
const READ_ON_BYTES: usize = 16 << 10;
const RETRY_PERIOD: Duration = Duration::from_millis(50);
/// Postgres is told where things stand at least this often, changed or not.
const REPORT_PERIOD: Duration = Duration::from_secs(1);
/// Seconds from the Unix epoch to Postgres's, 2000-01-01.
const POSTGRES_EPOCH_SECONDS: u64 = 946_684_800;

/// A running proposer. Dropping every clone, or [`ProposerHandle::shutdown`], stops it.
#[derive(Clone)]
pub struct ProposerHandle {
    running: Arc<Running>,
}

impl ProposerHandle {
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.running.shared
    }

    /// How far the WAL has come, followed as it changes.
    pub fn positions(&self) -> watch::Receiver<Positions> {
        self.running.shared.positions.subscribe()
    }

    /// The last XLOG_FPW_CHANGE: announced when seen, and again when committed.
    pub fn last_fpw_change(&self) -> watch::Receiver<Option<FpwChange>> {
        self.running.shared.fpw_change.subscribe()
    }

    /// Why the compute has to stop, as soon as it has to; `None` until then.
    pub fn fatal(&self) -> watch::Receiver<Option<Fatal>> {
        self.running.shared.fatal.subscribe()
    }

    /// Waits until everything up to `lsn` is committed. Fails when that can't happen any more.
    pub async fn committed(&self, lsn: Lsn) -> Result<(), Fatal> {
        let (mut positions, mut fatal) = (self.positions(), self.fatal());
        tokio::select! {
            reached = positions.wait_for(|positions| positions.commit >= lsn) => match reached {
                Ok(_) => Ok(()),
                Err(_) => Err(Fatal::Stopped { detail: "the proposer was shut down".into() }),
            },
            failed = fatal.wait_for(Option::is_some) => match failed.ok().and_then(|fatal| fatal.clone()) {
                Some(fatal) => Err(fatal),
                None => Err(Fatal::Stopped { detail: "the proposer was shut down".into() }),
            },
        }
    }

    /// Closes every connection; nothing is acknowledged after it returns.
    pub async fn shutdown(&self) {
        self.running.shared.closed.cancel();
    }
}

pub fn start(
    running: Running,
    postgres: PgConn,
    start_lsn: Lsn,
    prev_record_lsn: Option<Lsn>,
    system_identifier: u64,
) -> ProposerHandle {
    let shared = running.shared.clone();
    let source = Source {
        follower: Follower::new(start_lsn, prev_record_lsn, system_identifier),
        closed: shared.closed.clone(),
        shared,
        postgres,
        received: start_lsn,
        system_identifier,
        due: Due::default(),
    };
    running.shared.reactor.spawn(source.run());
    ProposerHandle {
        running: Arc::new(running),
    }
}

struct Source {
    shared: Arc<Shared>,
    postgres: PgConn,
    follower: Follower,
    received: Lsn,
    system_identifier: u64,
    /// When the next WAL may be read as far as the room for it is concerned.
    due: Due,
    closed: CancellationToken,
}

impl Source {
    async fn run(mut self) {
        let closed = self.closed.clone();
        let mut fatal = self.shared.fatal.subscribe();
        let mut last_error = String::new();
        loop {
            let ended = tokio::select! {
                ended = self.connection() => ended,
                // Nothing is acknowledged to Postgres any more.
                _ = fatal.wait_for(Option::is_some) => return,
                () = closed.cancelled() => return,
            };
            let error = ended.map_or_else(
                |error| format!("{error:#}"),
                |()| "Postgres ended the stream".to_owned(),
            );
            // While Postgres starts, the same answer comes many times a second.
            if error != last_error {
                tracing::info!(timeline = %self.shared.config.timeline, "replication: {error}");
                last_error = error;
            }
            tokio::time::sleep(RETRY_PERIOD).await;
        }
    }

    async fn connection(&mut self) -> anyhow::Result<()> {
        let PgConn {
            socket_dir,
            port,
            user,
            slot,
        } = &self.postgres;
        let mut replication = Replication::connect(socket_dir, *port, user).await?;
        let system_identifier = replication.identify().await?;
        if system_identifier != self.system_identifier {
            let detail = format!(
                "Postgres is system {system_identifier}, the timeline belongs to {}",
                self.system_identifier
            );
            self.shared.fail(Fatal::Stopped {
                detail: detail.clone(),
            });
            bail!(detail);
        }
        replication
            .create_slot(slot)
            .await
            .context("cannot create the replication slot")?;
        let (reader, writer) = replication.start(slot, self.received).await?;
        tracing::info!(timeline = %self.shared.config.timeline, from = %self.received, "following Postgres");
        let (asked, asks) = watch::channel(());
        let shared = self.shared.clone();
        tokio::select! {
            ended = self.receive(reader, asked) => ended,
            ended = report(&shared, writer, asks) => ended,
        }
    }

    async fn receive(
        &mut self,
        mut reader: Reader,
        asked: watch::Sender<()>,
    ) -> anyhow::Result<()> {
        let mut positions = self.shared.positions.subscribe();
        let limit = self.shared.config.buffer_bytes as u64;
        loop {
            match reader.event().await? {
                Event::End => return Ok(()),
                Event::Keepalive { reply_requested } => {
                    if reply_requested {
                        asked.send_replace(());
                    }
                }
                Event::Wal { start, wal } => {
                    if start != self.received {
                        bail!("Postgres sent WAL of {start}, expected {}", self.received);
                    }
                    let since = Instant::now();
                    // First on its way, then looked at.
                    self.shared.received(wal.clone());
                    self.received = start + wal.len() as u64;
                    self.check_records(start, &wal, since)?;
                    let small = wal.len() < READ_ON_BYTES;
                    if small && !reader.has_message() {
                        let under_way = positions.borrow().record_end;
                        let committed = positions.wait_for(|now| now.commit >= under_way);
                        // Whoever waits for a keepalive's answer must not wait for a majority.
                        if let Ok(ended) = tokio::time::timeout(GATHER_PERIOD, committed).await {
                            ended?;
                        }
                    }
                    let wait = self.shared.config.pace.took(wal.len(), Instant::now());
                    if !wait.is_zero() {
                        self.shared.metrics.paced_seconds.inc_by(wait.as_secs_f64());
                        tokio::time::sleep(wait).await;
                    }
                    let waited =
                        room::wait(&self.due, &mut positions, wal.len(), self.received).await?;
                    let held_back = &self.shared.metrics.held_back_seconds;
                    held_back.inc_by(waited.as_secs_f64());
                    // WAL that no majority has must not fill memory: Postgres waits, and its pg_wal holds it.
                    // Only whole records count, a broken-off one can't be committed before its end has come.
                    positions
                        .wait_for(|now| now.record_end.0.saturating_sub(now.commit.0) <= limit)
                        .await?;
                }
            }
        }
    }

    fn check_records(&mut self, start: Lsn, wal: &[u8], since: Instant) -> anyhow::Result<()> {
        let relations = &self.shared.config.relations;
        let seen = relations.count(|relations| self.follower.take(start, wal, relations));
        let seen = match seen {
            Ok(seen) => seen,
            Err(error) => {
                let detail = format!("the compute's own WAL is damaged: {error}");
                self.shared.fail(Fatal::Stopped {
                    detail: detail.clone(),
                });
                bail!(detail);
            }
        };
        self.shared.metrics.wal(&seen.stats);
        self.shared.records_end(seen.record_end, since);
        if let Some(change) = seen.fpw_change {
            tracing::info!(enabled = change.enabled, record_lsn = %change.record_lsn, "full page writes changed");
            self.shared.fpw_changed(change);
        }
        Ok(())
    }
}

/// Tells Postgres what is safe whenever that changed, was asked for, or a second has passed.
async fn report(
    shared: &Shared,
    mut writer: Writer,
    mut asks: watch::Receiver<()>,
) -> anyhow::Result<()> {
    let mut positions = shared.positions.subscribe();
    let mut clock = tokio::time::interval(REPORT_PERIOD);
    clock.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut reported: Option<StandbyStatus> = None;
    loop {
        let now = *positions.borrow_and_update();
        let status = StandbyStatus {
            write: now.written,
            flush: now.commit,
            apply: now.applied,
        };
        if reported != Some(status) {
            writer.report(status, postgres_now_us()).await?;
            reported = Some(status);
        }
        tokio::select! {
            changed = positions.changed() => changed?,
            changed = asks.changed() => {
                changed?;
                reported = None;
            }
            _ = clock.tick() => reported = None,
        }
    }
}

fn postgres_now_us() -> i64 {
    let epoch = SystemTime::UNIX_EPOCH + Duration::from_secs(POSTGRES_EPOCH_SECONDS);
    SystemTime::now()
        .duration_since(epoch)
        .map_or(0, |since| since.as_micros() as i64)
}
