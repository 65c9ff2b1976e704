use std::collections::HashSet;

use proptest::prelude::*;

use super::*;

type Pools = Slots<u32, u32>;

const LIFETIME: Duration = Duration::from_secs(100_000);

fn key(role: &str, class: &str) -> Key {
    let group = Group {
        endpoint: EndpointName::new("ep-a").expect("a name"),
        role: role.into(),
        database: "d".into(),
    };
    let class = vec![("options".to_owned(), class.to_owned())];
    Key {
        group,
        class: class.into(),
    }
}

fn slots(group: usize, endpoint: usize) -> Pools {
    Slots::new(Limits {
        group,
        endpoint,
        idle: Duration::from_secs(60),
        lifetime: LIFETIME,
    })
}

fn connect(effects: &Effects<u32>) -> Made {
    match effects.granted[..] {
        [(_, Grant::Connect(epoch))] => Made {
            epoch,
            at: Instant::now(),
        },
        ref other => panic!("{other:?}"),
    }
}

#[test]
fn clients_are_served_in_the_order_they_came() {
    let (mut slots, key, now) = (slots(1, 10), key("app", ""), Instant::now());
    let (_, effects) = slots.ask(&key);
    let epoch = connect(&effects);
    let waiting: Vec<_> = (0..5).map(|_| slots.ask(&key)).collect();
    assert!(
        waiting
            .iter()
            .all(|(_, effects)| *effects == Effects::none())
    );
    for (ticket, _) in waiting {
        let effects = slots.give_back(&key, 7, epoch, now);
        assert_eq!(effects.granted, [(ticket, Grant::Lent(7))]);
    }
}

#[test]
fn a_client_that_gives_up_is_passed_over_and_one_that_was_served_learns_of_it() {
    let (mut slots, key, now) = (slots(1, 10), key("app", ""), Instant::now());
    let (first, effects) = slots.ask(&key);
    let epoch = connect(&effects);
    assert!(!slots.give_up(&key, first));
    let (second, _) = slots.ask(&key);
    let (third, _) = slots.ask(&key);
    assert!(slots.give_up(&key, second));
    let effects = slots.give_back(&key, 7, epoch, now);
    assert_eq!(effects.granted, [(third, Grant::Lent(7))]);
}

#[test]
fn an_idle_connection_of_another_class_or_role_makes_room() {
    let (mut slots, now) = (slots(1, 2), Instant::now());
    let (_, effects) = slots.ask(&key("app", "a"));
    let epoch = connect(&effects);
    slots.give_back(&key("app", "a"), 1, epoch, now);
    // The group is full, of another class.
    let (_, effects) = slots.ask(&key("app", "b"));
    assert_eq!(effects.closed, [1]);
    let epoch = connect(&effects);
    slots.give_back(&key("app", "b"), 2, epoch, now);
    let (_, effects) = slots.ask(&key("other", ""));
    assert!(effects.closed.is_empty());
    connect(&effects);
    // The endpoint is full, and one of another role is idle.
    let (_, effects) = slots.ask(&key("third", ""));
    assert_eq!(effects.closed, [2]);
    connect(&effects);
    // All are lent.
    let (ticket, effects) = slots.ask(&key("app", "b"));
    assert_eq!(effects, Effects::none());
    let effects = slots.lost(&key("other", ""));
    assert_eq!(effects.granted.len(), 1);
    assert_eq!(effects.granted[0].0, ticket);
}

#[test]
fn who_waited_longest_at_a_full_endpoint_comes_first_whatever_its_role() {
    let mut slots = slots(2, 2);
    for _ in 0..2 {
        connect(&slots.ask(&key("app", "")).1);
    }
    let (other, _) = slots.ask(&key("other", ""));
    let (app, _) = slots.ask(&key("app", ""));
    let granted = slots.lost(&key("app", "")).granted;
    assert_eq!(granted[0].0, other);
    let granted = slots.lost(&key("app", "")).granted;
    assert_eq!(granted[0].0, app);
}

#[test]
fn a_new_verifier_closes_idle_connections_and_lent_ones_when_they_come_back() {
    let (mut slots, key, now) = (slots(3, 10), key("app", ""), Instant::now());
    let epochs: Vec<_> = (0..3).map(|_| connect(&slots.ask(&key).1)).collect();
    assert_eq!(slots.logged_in(&key.group, 1), Effects::none());
    slots.give_back(&key, 1, epochs[0], now);
    slots.give_back(&key, 2, epochs[1], now);
    assert_eq!(slots.logged_in(&key.group, 1), Effects::none());
    let mut closed = slots.logged_in(&key.group, 2).closed;
    closed.sort();
    assert_eq!(closed, [1, 2]);
    assert_eq!(slots.give_back(&key, 3, epochs[2], now).closed, [3]);
    assert!(slots.endpoints.is_empty());
    // A connection of now is kept.
    let epoch = connect(&slots.ask(&key).1);
    assert_eq!(slots.give_back(&key, 4, epoch, now), Effects::none());
}

#[test]
fn connections_that_were_idle_for_too_long_are_closed_and_what_they_said_is_forgotten() {
    let (mut slots, key, now) = (slots(3, 10), key("app", ""), Instant::now());
    let epochs: Vec<_> = (0..2).map(|_| connect(&slots.ask(&key).1)).collect();
    slots.learn(&key, Learned::new(Vec::new()));
    slots.give_back(&key, 1, epochs[0], now);
    slots.give_back(&key, 2, epochs[1], now + Duration::from_secs(30));
    assert!(slots.sweep(now + Duration::from_secs(59)).is_empty());
    assert_eq!(slots.sweep(now + Duration::from_secs(60)), [1]);
    assert!(slots.learned(&key).is_some());
    assert_eq!(slots.sweep(now + Duration::from_secs(90)), [2]);
    assert!(slots.learned(&key).is_none());
    assert!(slots.endpoints.is_empty());
}

#[test]
fn a_connection_that_has_become_old_is_closed_when_it_comes_back() {
    let (mut slots, key) = (slots(1, 10), key("app", ""));
    let made = connect(&slots.ask(&key).1);
    let (waiting, _) = slots.ask(&key);
    let soon = made.at + LIFETIME - Duration::from_secs(1);
    let effects = slots.give_back(&key, 1, made, soon);
    assert_eq!(effects.granted, [(waiting, Grant::Lent(1))]);
    let (waiting, _) = slots.ask(&key);
    let effects = slots.give_back(&key, 1, made, made.at + LIFETIME);
    assert_eq!(effects.closed, [1]);
    assert!(matches!(effects.granted[..], [(who, Grant::Connect(_))] if who == waiting));
}

#[derive(Clone, Debug)]
enum Act {
    Ask(u8, u8),
    GiveUp(usize),
    GiveBack(usize),
    Lose(usize),
    LogIn(u8, u32),
    Sweep(u64),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => (0_u8..3, 0_u8..2).prop_map(|(role, class)| Act::Ask(role, class)),
        1 => any::<usize>().prop_map(Act::GiveUp),
        4 => any::<usize>().prop_map(Act::GiveBack),
        1 => any::<usize>().prop_map(Act::Lose),
        1 => (0_u8..3, 0_u32..2).prop_map(|(role, verifier)| Act::LogIn(role, verifier)),
        1 => (0_u64..200).prop_map(Act::Sweep),
    ]
}

/// What the outside knows: connections that are lent, those that are not, and who waits.
#[derive(Default)]
struct World {
    lent: Vec<(Key, u32, Made)>,
    idle: HashSet<u32>,
    waiting: Vec<(Ticket, Key)>,
    asked: HashMap<Ticket, Key>,
    made: u32,
    epochs: HashMap<u32, Made>,
}

impl World {
    fn take(&mut self, effects: Effects<u32>) -> Result<(), TestCaseError> {
        for (ticket, grant) in effects.granted {
            let key = self.asked[&ticket].clone();
            let earlier = |(other, theirs): &(Ticket, Key)| {
                *other < ticket && theirs.group == key.group && theirs.class == key.class
            };
            prop_assert!(
                !self.waiting.iter().any(earlier),
                "somebody was passed over"
            );
            self.waiting.retain(|(other, _)| *other != ticket);
            let (connection, epoch) = match grant {
                Grant::Lent(connection) => {
                    prop_assert!(self.idle.remove(&connection), "it was not idle");
                    (connection, self.epochs[&connection])
                }
                Grant::Connect(epoch) => {
                    self.made += 1;
                    let at = Instant::now();
                    self.epochs.insert(self.made, Made { epoch, at });
                    (self.made, Made { epoch, at })
                }
            };
            self.lent.push((key, connection, epoch));
        }
        for connection in effects.closed {
            prop_assert!(self.idle.remove(&connection), "it was closed while lent");
        }
        Ok(())
    }
}

proptest! {
    /// However clients come and go: limits hold, no connection is with two clients or lost, and nobody waits while there
    /// is a connection, or room for one.
    #[test]
    fn limits_hold_and_nobody_waits_in_vain(
        group in 1_usize..4,
        endpoint in 1_usize..6,
        acts in proptest::collection::vec(act(), 1..80),
    ) {
        let (mut slots, mut world, mut now) = (slots(group, endpoint), World::default(), Instant::now());
        for act in acts {
            match act {
                Act::Ask(role, class) => {
                    let key = key(&role.to_string(), &class.to_string());
                    let (ticket, effects) = slots.ask(&key);
                    world.asked.insert(ticket, key.clone());
                    world.waiting.push((ticket, key));
                    world.take(effects)?;
                }
                Act::GiveUp(which) if !world.waiting.is_empty() => {
                    let (ticket, key) = world.waiting.remove(which % world.waiting.len());
                    prop_assert!(slots.give_up(&key, ticket));
                }
                Act::GiveBack(which) if !world.lent.is_empty() => {
                    let (key, connection, epoch) = world.lent.swap_remove(which % world.lent.len());
                    world.idle.insert(connection);
                    world.take(slots.give_back(&key, connection, epoch, now))?;
                }
                Act::Lose(which) if !world.lent.is_empty() => {
                    let (key, ..) = world.lent.swap_remove(which % world.lent.len());
                    world.take(slots.lost(&key))?;
                }
                Act::LogIn(role, verifier) => {
                    world.take(slots.logged_in(&key(&role.to_string(), "").group, verifier))?;
                }
                Act::Sweep(seconds) => {
                    now += Duration::from_secs(seconds);
                    let closed = slots.sweep(now);
                    world.take(Effects { granted: Vec::new(), closed })?;
                }
                _ => {}
            }
            let counts = slots.counts();
            prop_assert_eq!(counts.busy, world.lent.len());
            prop_assert_eq!(counts.idle, world.idle.len());
            prop_assert_eq!(counts.waiting, world.waiting.len());
            prop_assert!(counts.busy + counts.idle <= endpoint);
            for role in 0..3 {
                let of = key(&role.to_string(), "").group;
                let count = slots.known(&of).map_or(0, |role| role.count);
                prop_assert!(count <= group);
                if slots.endpoints.values().all(|all| all.count < endpoint) && count < group {
                    prop_assert!(!world.waiting.iter().any(|(_, key)| key.group == of), "there is room");
                }
            }
            if counts.idle > 0 && counts.busy + counts.idle == endpoint {
                let stuck = |(_, waiting): &(Ticket, Key)| {
                    slots.endpoints.values().any(|all| {
                        all.groups.get(&waiting.group).is_none_or(|role| role.count < group)
                    })
                };
                prop_assert!(!world.waiting.iter().any(stuck), "an idle one could make room");
            }
        }
    }
}

/// What effects say, without the tickets.
fn said(effects: &Effects<u32>) -> (Vec<String>, Vec<u32>) {
    let grants = effects.granted.iter();
    let mut closed = effects.closed.clone();
    closed.sort_unstable();
    (
        grants.map(|(_, grant)| format!("{grant:?}")).collect(),
        closed,
    )
}

proptest! {
    /// Whatever happened before, a client that takes what is idle gets what the queue would have granted it, and all others
    /// get what they would have got.
    #[test]
    fn who_takes_what_is_idle_passes_nobody_over(
        group in 1_usize..4,
        endpoint in 1_usize..6,
        acts in proptest::collection::vec(act(), 1..80),
    ) {
        let (mut queueing, mut taking) = (slots(group, endpoint), slots(group, endpoint));
        let (mut world, mut now) = (World::default(), Instant::now());
        let mut same = HashMap::new();
        for act in acts {
            let (effects, others) = match act {
                Act::Ask(role, class) => {
                    let key = key(&role.to_string(), &class.to_string());
                    let taken = taking.take_idle(&key);
                    let (ticket, effects) = queueing.ask(&key);
                    world.asked.insert(ticket, key.clone());
                    world.waiting.push((ticket, key.clone()));
                    let others = match taken {
                        Some(connection) => Effects {
                            granted: vec![(ticket, Grant::Lent(connection))],
                            closed: Vec::new(),
                        },
                        None => {
                            let (other, effects) = taking.ask(&key);
                            same.insert(ticket, other);
                            effects
                        }
                    };
                    (effects, others)
                }
                Act::GiveUp(which) if !world.waiting.is_empty() => {
                    let (ticket, key) = world.waiting.remove(which % world.waiting.len());
                    prop_assert!(queueing.give_up(&key, ticket));
                    prop_assert!(taking.give_up(&key, same[&ticket]));
                    continue;
                }
                Act::GiveBack(which) if !world.lent.is_empty() => {
                    let (key, connection, epoch) = world.lent.swap_remove(which % world.lent.len());
                    world.idle.insert(connection);
                    let others = taking.give_back(&key, connection, epoch, now);
                    (queueing.give_back(&key, connection, epoch, now), others)
                }
                Act::Lose(which) if !world.lent.is_empty() => {
                    let (key, ..) = world.lent.swap_remove(which % world.lent.len());
                    (queueing.lost(&key), taking.lost(&key))
                }
                Act::LogIn(role, verifier) => {
                    let of = key(&role.to_string(), "").group;
                    (queueing.logged_in(&of, verifier), taking.logged_in(&of, verifier))
                }
                Act::Sweep(seconds) => {
                    now += Duration::from_secs(seconds);
                    let swept = |closed| Effects { granted: Vec::new(), closed };
                    (swept(queueing.sweep(now)), swept(taking.sweep(now)))
                }
                _ => continue,
            };
            prop_assert_eq!(said(&effects), said(&others));
            world.take(effects)?;
            prop_assert_eq!(queueing.counts(), taking.counts());
        }
    }
}
