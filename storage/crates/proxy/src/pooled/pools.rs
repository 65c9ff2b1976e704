//! The pools of all endpoints, and their connections.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pg_protocol::scram::Verifier;
use thiserror::Error;
use tokio::sync::oneshot;

use super::connection::Connection;
use crate::metrics;
use crate::pool::key::{Group, Key};
use crate::pool::parameters::Learned;
use crate::pool::schema::Schemas;
use crate::pool::slots::{Effects, Grant, Limits, Made, Slots, Ticket};
use crate::pool::statements::Contents;

/// So often connections are looked at that have been idle for too long.
const SWEEP: Duration = Duration::from_secs(1);

/// Settings of all pools.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Connections and their time.
    pub limits: Limits,
    /// How long a client waits for a connection.
    pub queue: Duration,
    /// Prepared statements of a server connection at a time.
    pub statements: usize,
    /// After so long, looked at each second, what clients prepare is prepared anew on each server connection: a schema may
    /// change without the proxy's knowledge.
    pub renewal: Duration,
    /// Whether `DISCARD ALL` is sent before another client than the last gets a connection.
    pub discard: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            limits: Limits {
                group: 20,
                endpoint: 80,
                idle: Duration::from_secs(60),
                lifetime: Duration::from_secs(3600),
            },
            queue: Duration::from_secs(60),
            statements: 200,
            renewal: Duration::from_secs(60),
            discard: false,
        }
    }
}

/// A connection as it goes from hand to hand.
type Held = Box<Connection>;
type Granted = Grant<Held>;

struct Inner {
    slots: Slots<Held, Verifier>,
    waiting: HashMap<Ticket, oneshot::Sender<Granted>>,
    clients: u64,
}

/// All pools of the process.
pub struct Pools {
    inner: Mutex<Inner>,
    /// As they were given.
    pub settings: Settings,
    /// The prepared statements of all clients.
    pub contents: Arc<Contents>,
    /// Whether statements of server connections are outdated.
    pub schemas: Schemas,
}

/// No connection became free in time.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("no server connection became free within {0:?}")]
pub struct QueueTimeout(pub Duration);

/// A connection that is lent, or the right to make one. When it goes without being given back, it is counted no longer,
/// and a connection is closed.
pub struct Lease {
    pools: Arc<Pools>,
    key: Key,
    /// None: it has to be made.
    pub connection: Option<Box<Connection>>,
    /// When the connection was made, or the right to make it was given.
    pub made: Made,
    returned: bool,
}

impl Pools {
    /// Without a connection so far.
    pub fn new(settings: Settings) -> Arc<Pools> {
        Arc::new(Pools {
            inner: Mutex::new(Inner {
                slots: Slots::new(settings.limits),
                waiting: HashMap::new(),
                clients: 0,
            }),
            settings,
            contents: Arc::new(Contents::default()),
            schemas: Schemas::default(),
        })
    }

    /// A number that no other client has; not 0.
    pub fn number(&self) -> u64 {
        let mut inner = self.inner.lock();
        inner.clients += 1;
        inner.clients
    }

    /// Notes that a client of the role has logged in with this verifier. When it is another than before, connections that
    /// were made with the old one are used no longer.
    pub fn logged_in(&self, group: &Group, verifier: Verifier) {
        self.change(|slots| slots.logged_in(group, verifier));
    }

    /// What connections of the pool have said at their begin, while there is one.
    pub fn learned<T>(&self, key: &Key, look: impl FnOnce(&mut Learned) -> T) -> Option<T> {
        self.inner.lock().slots.learned(key).map(look)
    }

    /// Notes what a new connection of the pool has said at its begin.
    pub fn learn(&self, key: &Key, learned: Learned) {
        self.inner.lock().slots.learn(key, learned);
    }

    /// A connection of the pool, or the right to make one. Clients get theirs in the order in which they came.
    ///
    /// # Errors
    /// None has become free in time.
    pub async fn take(self: &Arc<Pools>, key: &Key) -> Result<Lease, QueueTimeout> {
        let idle = self.inner.lock().slots.take_idle(key);
        if let Some(connection) = idle {
            metrics::POOL_WAIT_SECONDS.observe(0.0);
            return Ok(self.lease(key, Grant::Lent(connection)));
        }
        let begun = Instant::now();
        let (sender, receiver) = oneshot::channel();
        let (ticket, closed) = {
            let mut inner = self.inner.lock();
            let (ticket, effects) = inner.slots.ask(key);
            inner.waiting.insert(ticket, sender);
            (ticket, inner.apply(effects))
        };
        drop(closed);
        let mut place = Place {
            pools: self,
            key,
            ticket,
            receiver,
            left: false,
        };
        let limit = self.settings.queue;
        let granted = match tokio::time::timeout(limit, &mut place.receiver).await {
            Ok(granted) => {
                place.left = true;
                granted.ok()
            }
            Err(_) => place.leave(),
        };
        metrics::POOL_WAIT_SECONDS.observe(begun.elapsed().as_secs_f64());
        granted
            .map(|granted| self.lease(key, granted))
            .ok_or(QueueTimeout(limit))
    }

    fn lease(self: &Arc<Pools>, key: &Key, granted: Granted) -> Lease {
        let (connection, made) = match granted {
            Grant::Lent(connection) => {
                let made = connection.made;
                (Some(connection), made)
            }
            Grant::Connect(epoch) => {
                let at = Instant::now();
                (None, Made { epoch, at })
            }
        };
        Lease {
            pools: self.clone(),
            key: key.clone(),
            connection,
            made,
            returned: false,
        }
    }

    fn change(&self, change: impl FnOnce(&mut Slots<Held, Verifier>) -> Effects<Held>) {
        let closed = {
            let mut inner = self.inner.lock();
            let effects = change(&mut inner.slots);
            inner.apply(effects)
        };
        // Closed without the lock.
        drop(closed);
    }

    /// Closes connections that have been idle for too long, bounds the age of statements and keeps the gauges, forever.
    pub async fn watch(self: Arc<Pools>) {
        let mut renewed = Instant::now();
        loop {
            tokio::time::sleep(SWEEP).await;
            if renewed.elapsed() >= self.settings.renewal {
                renewed = Instant::now();
                self.schemas.renew();
            }
            let (closed, counts) = {
                let mut inner = self.inner.lock();
                (inner.slots.sweep(Instant::now()), inner.slots.counts())
            };
            drop(closed);
            for (state, count) in [("idle", counts.idle), ("busy", counts.busy)] {
                let gauge = metrics::POOL_CONNECTIONS.with_label_values(&[state]);
                gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
            }
            metrics::POOL_WAITING.set(i64::try_from(counts.waiting).unwrap_or(i64::MAX));
        }
    }
}

impl Inner {
    /// Wakes those who have been granted something; answers with the connections to be closed.
    fn apply(&mut self, effects: Effects<Held>) -> Vec<Held> {
        for (ticket, granted) in effects.granted {
            // A client's place is left under the lock, so that what it is sent here is taken, or given back.
            if let Some(sender) = self.waiting.remove(&ticket) {
                let _ = sender.send(granted);
            }
        }
        effects.closed
    }
}

/// A client's place in the queue, left when it goes.
struct Place<'a> {
    pools: &'a Arc<Pools>,
    key: &'a Key,
    ticket: Ticket,
    receiver: oneshot::Receiver<Granted>,
    left: bool,
}

impl Place<'_> {
    /// Leaves the queue. What was granted in the last moment is answered with.
    fn leave(&mut self) -> Option<Granted> {
        if std::mem::replace(&mut self.left, true) {
            return None;
        }
        let mut inner = self.pools.inner.lock();
        if inner.slots.give_up(self.key, self.ticket) {
            inner.waiting.remove(&self.ticket);
            return None;
        }
        self.receiver.try_recv().ok()
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Some(granted) = self.leave() {
            let mut lease = self.pools.lease(self.key, granted);
            if let Some(connection) = lease.connection.take() {
                lease.give_back(connection);
            }
        }
    }
}

impl Lease {
    /// Gives the connection to the next client. It is outside of a transaction, and has answered all it was asked.
    pub fn give_back(mut self, connection: Box<Connection>) {
        self.returned = true;
        self.pools
            .change(|slots| slots.give_back(&self.key, connection, self.made, Instant::now()));
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if !self.returned {
            drop(self.connection.take());
            self.pools.change(|slots| slots.lost(&self.key));
        }
    }
}
