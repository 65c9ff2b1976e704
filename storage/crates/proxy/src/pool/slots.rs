//! The server connections of all pools: which are idle, how many there are, and who waits for one.
//!
//! A client waits in the queue of its group, and the groups of an endpoint take turns by how long their first clients
//! have waited. So a connection goes to the client that has waited longest among those that it can be used for; where it
//! can be used for none, it makes room for a new one. Nothing here waits, closes or connects: what is to be done is in
//! the [`Effects`] of each call.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::{Duration, Instant};

use pg_protocol::endpoint::EndpointName;

use super::key::{Class, Group, Key};
use super::parameters::Learned;

/// Limits of each endpoint's connections.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections of one role to one database, at least 1.
    pub group: usize,
    /// Connections to one endpoint, at least 1.
    pub endpoint: usize,
    /// A connection that was idle for so long is closed.
    pub idle: Duration,
    /// A connection that was made so long ago is closed when it comes back.
    pub lifetime: Duration,
}

/// A client's place in the queue. Later ones are greater.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Ticket(u64);

/// What a client gets.
#[derive(Debug, PartialEq, Eq)]
pub enum Grant<C> {
    /// An idle connection.
    Lent(C),
    /// The right to make one, which has been counted already: `lost` takes it back.
    Connect(Epoch),
}

/// Connections that were made before the role's verifier changed have another epoch than later ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Epoch(u64);

/// When a connection was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Made {
    /// By whose verifier.
    pub epoch: Epoch,
    /// By the clock.
    pub at: Instant,
}

/// What has to be done after a call.
#[derive(Debug, PartialEq, Eq)]
pub struct Effects<C> {
    /// Clients that have waited long enough, and what they get.
    pub granted: Vec<(Ticket, Grant<C>)>,
    /// Connections to be closed. They are counted no longer.
    pub closed: Vec<C>,
}

impl<C> Effects<C> {
    fn none() -> Effects<C> {
        Effects {
            granted: Vec::new(),
            closed: Vec::new(),
        }
    }
}

struct Idle<C> {
    connection: C,
    since: Instant,
}

struct Pool<C> {
    /// Connections idle, lent and being made.
    count: usize,
    /// By how long they have been idle, the longest first.
    idle: VecDeque<Idle<C>>,
    learned: Option<Learned>,
}

struct Role<C, V> {
    count: usize,
    pools: HashMap<Class, Pool<C>>,
    queue: VecDeque<(Ticket, Class)>,
    verifier: Option<V>,
    epoch: u64,
}

struct Endpoint<C, V> {
    count: usize,
    groups: BTreeMap<Group, Role<C, V>>,
}

/// All pools. `C` is a connection, `V` what tells one verifier from another.
pub struct Slots<C, V> {
    limits: Limits,
    endpoints: HashMap<EndpointName, Endpoint<C, V>>,
    tickets: u64,
    epochs: u64,
}

/// Connections and clients at a moment.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Connections that are idle.
    pub idle: usize,
    /// Connections that are lent or being made.
    pub busy: usize,
    /// Clients that wait.
    pub waiting: usize,
}

impl<C, V: PartialEq> Slots<C, V> {
    /// No connections, and nobody who waits.
    pub fn new(limits: Limits) -> Slots<C, V> {
        Slots {
            limits: Limits {
                group: limits.group.max(1),
                endpoint: limits.endpoint.max(1),
                ..limits
            },
            endpoints: HashMap::new(),
            tickets: 0,
            epochs: 0,
        }
    }

    /// A connection for a client that has to wait for nobody: one of its pool that is idle. While one is, no client of the
    /// group waits, and none of another group could be served by it, since each change here serves all who can be. So
    /// nobody is passed over, and the client gets what [`ask`](Slots::ask) would grant it at once.
    pub fn take_idle(&mut self, key: &Key) -> Option<C> {
        let group = self.known(&key.group)?;
        let idle = group.pools.get_mut(&key.class)?.idle.pop_back()?;
        Some(idle.connection)
    }

    /// Puts a client in the queue. It may be granted what it asks for in the same call.
    pub fn ask(&mut self, key: &Key) -> (Ticket, Effects<C>) {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        let group = self.group(&key.group);
        group.queue.push_back((ticket, key.class.clone()));
        (ticket, self.serve(&key.group.endpoint))
    }

    /// Takes a client out of the queue. False: it has been granted something meanwhile, which its caller has to give back.
    pub fn give_up(&mut self, key: &Key, ticket: Ticket) -> bool {
        let Some(group) = self.known(&key.group) else {
            return false;
        };
        let before = group.queue.len();
        group.queue.retain(|(waiting, _)| *waiting != ticket);
        let waited = group.queue.len() < before;
        self.tidy(&key.group);
        waited
    }

    /// Takes back a connection that the next client can use. One of an earlier epoch, and one that has become old, is
    /// closed.
    pub fn give_back(&mut self, key: &Key, connection: C, made: Made, now: Instant) -> Effects<C> {
        let old = now.saturating_duration_since(made.at) >= self.limits.lifetime;
        let group = self.group(&key.group);
        if old || group.epoch != made.epoch.0 {
            let mut effects = self.lost(key);
            effects.closed.push(connection);
            return effects;
        }
        let pool = group.pool(&key.class);
        pool.idle.push_back(Idle {
            connection,
            since: now,
        });
        self.serve(&key.group.endpoint)
    }

    /// Notes that a connection has ended that was lent, or did not come to be.
    pub fn lost(&mut self, key: &Key) -> Effects<C> {
        if let Some(endpoint) = self.endpoints.get_mut(&key.group.endpoint) {
            endpoint.forget(&key.group, &key.class);
        }
        let effects = self.serve(&key.group.endpoint);
        self.tidy(&key.group);
        effects
    }

    /// Notes that a client of the group has logged in with this verifier. When it is another than before, idle connections
    /// of the group are closed, and lent ones are when they come back.
    pub fn logged_in(&mut self, of: &Group, verifier: V) -> Effects<C> {
        self.epochs += 1;
        let epoch = self.epochs;
        let group = self.group(of);
        let changed = group.verifier.as_ref().is_some_and(|old| *old != verifier);
        group.verifier = Some(verifier);
        if !changed {
            return Effects::none();
        }
        group.epoch = epoch;
        let mut closed = Vec::new();
        for (class, pool) in &mut group.pools {
            for idle in pool.idle.drain(..) {
                closed.push((class.clone(), idle.connection));
            }
        }
        let mut all = Effects::none();
        for (class, connection) in closed {
            let key = Key {
                group: of.clone(),
                class,
            };
            let effects = self.lost(&key);
            all.granted.extend(effects.granted);
            all.closed.extend(effects.closed);
            all.closed.push(connection);
        }
        all
    }

    /// Takes out the connections that have been idle for too long, to be closed.
    pub fn sweep(&mut self, now: Instant) -> Vec<C> {
        let limit = self.limits.idle;
        let mut closed = Vec::new();
        for endpoint in self.endpoints.values_mut() {
            for group in endpoint.groups.values_mut() {
                for pool in group.pools.values_mut() {
                    let old = |idle: &Idle<C>| now.saturating_duration_since(idle.since) >= limit;
                    while pool.idle.front().is_some_and(old) {
                        closed.extend(pool.idle.pop_front().map(|idle| idle.connection));
                        pool.count -= 1;
                        group.count -= 1;
                        endpoint.count -= 1;
                    }
                }
                group.pools.retain(|_, pool| pool.count > 0);
            }
            endpoint
                .groups
                .retain(|_, group| group.count > 0 || !group.queue.is_empty());
        }
        self.endpoints
            .retain(|_, endpoint| !endpoint.groups.is_empty());
        closed
    }

    /// What the pool's connections have said at their begin, while it has any.
    pub fn learned(&mut self, key: &Key) -> Option<&mut Learned> {
        let group = self.known(&key.group)?;
        group.pools.get_mut(&key.class)?.learned.as_mut()
    }

    /// Notes what a new connection of the pool has said at its begin.
    pub fn learn(&mut self, key: &Key, learned: Learned) {
        let pool = self.group(&key.group).pool(&key.class);
        pool.learned.get_or_insert(learned);
    }

    /// How many connections and waiting clients there are.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for endpoint in self.endpoints.values() {
            for group in endpoint.groups.values() {
                counts.waiting += group.queue.len();
                for pool in group.pools.values() {
                    counts.idle += pool.idle.len();
                    counts.busy += pool.count - pool.idle.len();
                }
            }
        }
        counts
    }

    fn known(&mut self, group: &Group) -> Option<&mut Role<C, V>> {
        let endpoint = self.endpoints.get_mut(&group.endpoint)?;
        endpoint.groups.get_mut(group)
    }

    fn group(&mut self, group: &Group) -> &mut Role<C, V> {
        let endpoint = self
            .endpoints
            .entry(group.endpoint.clone())
            .or_insert_with(|| Endpoint {
                count: 0,
                groups: BTreeMap::new(),
            });
        endpoint.groups.entry(group.clone()).or_insert_with(|| {
            self.epochs += 1;
            Role {
                count: 0,
                pools: HashMap::new(),
                queue: VecDeque::new(),
                verifier: None,
                epoch: self.epochs,
            }
        })
    }

    /// Gives the endpoint's clients what there is for them.
    fn serve(&mut self, name: &EndpointName) -> Effects<C> {
        let mut effects = Effects::none();
        let limits = self.limits;
        let Some(endpoint) = self.endpoints.get_mut(name) else {
            return effects;
        };
        loop {
            let mut first: Vec<(Ticket, &Group)> = endpoint
                .groups
                .iter()
                .filter_map(|(name, group)| Some((group.queue.front()?.0, name)))
                .collect();
            first.sort();
            let first: Vec<Group> = first.into_iter().map(|(_, name)| name.clone()).collect();
            let served = first
                .iter()
                .any(|group| endpoint.serve_first(group, limits, &mut effects));
            if !served {
                return effects;
            }
        }
    }

    /// Forgets what has neither connections nor clients.
    fn tidy(&mut self, of: &Group) {
        let Some(endpoint) = self.endpoints.get_mut(&of.endpoint) else {
            return;
        };
        if let Some(group) = endpoint.groups.get_mut(of) {
            group.pools.retain(|_, pool| pool.count > 0);
            if group.count == 0 && group.queue.is_empty() {
                endpoint.groups.remove(of);
            }
        }
        if endpoint.groups.is_empty() {
            self.endpoints.remove(&of.endpoint);
        }
    }
}

impl<C, V> Role<C, V> {
    fn pool(&mut self, class: &Class) -> &mut Pool<C> {
        self.pools.entry(class.clone()).or_insert_with(|| Pool {
            count: 0,
            idle: VecDeque::new(),
            learned: None,
        })
    }

    /// The class of the connection that has been idle for longest, and since when.
    fn idlest(&self) -> Option<(Instant, &Class)> {
        let pools = self.pools.iter();
        pools
            .filter_map(|(class, pool)| Some((pool.idle.front()?.since, class)))
            .min()
    }
}

impl<C, V> Endpoint<C, V> {
    /// Serves the first client of a group, if it can be.
    fn serve_first(&mut self, name: &Group, limits: Limits, effects: &mut Effects<C>) -> bool {
        let Some(group) = self.groups.get_mut(name) else {
            return false;
        };
        let Some((ticket, class)) = group.queue.front().cloned() else {
            return false;
        };
        let grant = match group.pool(&class).idle.pop_back() {
            Some(idle) => Grant::Lent(idle.connection),
            None => {
                let (full, epoch) = (group.count >= limits.group, group.epoch);
                let room = match full {
                    true => self.evict(Some(name), effects),
                    false => self.count < limits.endpoint || self.evict(None, effects),
                };
                if !room {
                    return false;
                }
                self.count_one(name, &class);
                Grant::Connect(Epoch(epoch))
            }
        };
        if let Some(group) = self.groups.get_mut(name) {
            group.queue.pop_front();
        }
        effects.granted.push((ticket, grant));
        true
    }

    fn count_one(&mut self, name: &Group, class: &Class) {
        if let Some(group) = self.groups.get_mut(name) {
            group.pool(class).count += 1;
            group.count += 1;
            self.count += 1;
        }
    }

    fn forget(&mut self, name: &Group, class: &Class) {
        let Some(group) = self.groups.get_mut(name) else {
            return;
        };
        if let Some(pool) = group.pools.get_mut(class).filter(|pool| pool.count > 0) {
            pool.count -= 1;
            group.count -= 1;
            self.count -= 1;
        }
    }

    /// Closes the connection that has been idle for longest, of one group or of all. False: none is idle.
    fn evict(&mut self, within: Option<&Group>, effects: &mut Effects<C>) -> bool {
        let groups = self.groups.iter();
        let oldest = groups
            .filter(|(name, _)| within.is_none_or(|only| only == *name))
            .filter_map(|(name, group)| {
                let (since, class) = group.idlest()?;
                Some((since, name.clone(), class.clone()))
            })
            .min();
        let Some((_, name, class)) = oldest else {
            return false;
        };
        let group = self.groups.get_mut(&name);
        let idle = group.and_then(|group| group.pool(&class).idle.pop_front());
        effects.closed.extend(idle.map(|idle| idle.connection));
        self.forget(&name, &class);
        true
    }
}

#[cfg(test)]
mod tests;
