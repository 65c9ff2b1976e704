//! Logs are the same up to a position exactly when the same terms wrote every byte of them.

use proptest::prelude::*;

use super::*;

fn history(entries: &[(u64, u64)]) -> TermHistory {
    let entries = entries.iter().map(|(term, lsn)| TermStart {
        term: Term(*term),
        start_lsn: Lsn(*lsn),
    });
    entries.collect()
}

fn ingested(terms: TermHistory, up_to: u64) -> Ingested {
    Ingested {
        terms,
        up_to: Lsn(up_to),
    }
}

fn same(ours: &[(u64, u64)], up_to: u64, theirs: &[(u64, u64)], committed: u64) -> bool {
    let ours = ingested(history(ours), up_to);
    ours.compare(&history(theirs), Lsn(committed)).is_ok()
}

#[test]
fn a_term_that_begins_below_what_is_ingested_is_another_history() {
    let ours = [(1, 0), (2, 100)];
    assert!(same(&ours, 200, &[(1, 0), (2, 100), (3, 200)], 300));
    assert!(same(&ours, 200, &[(1, 0), (2, 100), (3, 201)], 300));
    assert!(!same(&ours, 200, &[(1, 0), (2, 100), (3, 199)], 300));
    assert!(!same(&ours, 200, &[(1, 0), (3, 100)], 300));
    assert!(!same(&ours, 200, &[(1, 0)], 300));
    assert!(!same(&ours, 200, &[(9, 0)], 300));
}

#[test]
fn a_log_that_is_behind_has_to_agree_as_far_as_it_goes() {
    let ours = [(1, 0), (2, 100)];
    assert!(
        same(&ours, 200, &[(1, 0)], 100),
        "the new term is unknown there"
    );
    assert!(!same(&ours, 200, &[(1, 0)], 101));
    assert!(same(&ours, 200, &[], 0));
    assert!(
        same(&ours, 200, &[(1, 0), (5, 60)], 60),
        "what is not committed there may still go"
    );
}

#[test]
fn terms_that_wrote_nothing_do_not_count() {
    let ours = [(1, 0), (5, 100), (6, 100)];
    assert!(same(&ours, 200, &[(1, 0), (6, 100)], 300));
    assert!(!same(&ours, 200, &[(1, 0), (5, 100)], 300));
}

/// A log that was founded where ingest stands, as after the loss of all safekeepers, continues what was ingested.
#[test]
fn a_log_that_was_founded_later_is_compared_from_its_beginning_on() {
    let ours = history(&[(1, 0), (7, 100)]);
    let founded = history(&[(8, 200)]);
    let at = |at: u64, theirs: &TermHistory| {
        let known = ingested(ours.clone(), at);
        known.compare_at(Lsn(at), theirs, Lsn(900)).is_ok()
    };
    assert!(at(200, &founded));
    assert!(!at(199, &founded), "who wrote 199 there?");
    assert!(!at(201, &founded), "200 is of term 7 here");
    assert!(!at(200, &history(&[])));
    // What had been ingested behind it was read by computes.
    let mut known = ingested(ours.clone(), 260);
    assert!(known.compare_at(Lsn(200), &founded, Lsn(900)).is_err());
    known.up_to = Lsn(200);
    assert!(known.follow(&founded, Lsn(900)));
    let both = ingested(history(&[(1, 0), (7, 100), (8, 200)]), 200);
    assert_eq!(known, both);
    let known = known.reaching(Lsn(250));
    assert!(known.compare_at(Lsn(250), &founded, Lsn(900)).is_ok());
    assert!(known.compare_at(Lsn(250), &ours, Lsn(900)).is_err());
}

/// After a crash ingest stands lower than what was ingested: what is known of that still counts.
#[test]
fn what_was_ingested_before_a_crash_still_tells_logs_apart() {
    let mut known = ingested(history(&[(1, 0), (2, 100)]), 150);
    let at = Lsn(50);
    let other = history(&[(1, 0), (9, 120)]);
    assert!(known.compare_at(at, &other, Lsn(900)).is_err());
    // One that has not so much committed cannot show yet which it is.
    let behind = history(&[(1, 0)]);
    assert!(known.compare_at(at, &behind, Lsn(90)).is_ok());
    assert!(!known.follow(&behind, Lsn(90)));
    assert!(known.compare_at(Lsn(90), &behind, Lsn(101)).is_err());
    let good = history(&[(1, 0), (2, 100), (3, 160)]);
    assert!(known.compare_at(Lsn(90), &good, Lsn(200)).is_ok());
    assert!(known.follow(&good, Lsn(200)));
    assert_eq!(known.terms, good);
    assert_eq!(known.cut().terms, history(&[(1, 0), (2, 100)]));
}

#[test]
fn an_error_names_both_histories_around_the_place() {
    let long: Vec<(u64, u64)> = (1..=20).map(|term| (term, term * 10)).collect();
    let mut other = long.clone();
    other[9].0 = 1000;
    other.truncate(10);
    let error = ingested(history(&long), 300)
        .compare(&history(&other), Lsn(400))
        .expect_err("other");
    assert_eq!(error.at, Lsn(100));
    let text = error.to_string();
    for part in [
        "10 from 0/64",
        "1000 from 0/64",
        "9 from 0/5A",
        "ingested up to 0/12C",
        "..",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(
        !text.contains("20 from") && !text.contains("delete"),
        "{text}"
    );
}

#[test]
fn an_unknown_history_is_what_a_majority_says_that_has_the_wal() {
    let (good, bad) = (history(&[(1, 0), (2, 50)]), history(&[(1, 0), (3, 50)]));
    let behind = history(&[(1, 0)]);
    let known = ingested(good.clone(), 100);
    let majority = |answers: &[(Lsn, &TermHistory)]| of_majority(answers, Lsn(100), 3);
    let later = history(&[(1, 0), (2, 50), (4, 100)]);
    assert_eq!(
        majority(&[(Lsn(100), &good), (Lsn(300), &later)]),
        Some(known.clone())
    );
    assert_eq!(
        majority(&[(Lsn(100), &bad), (Lsn(300), &good), (Lsn(300), &good)]),
        Some(known.clone())
    );
    assert_eq!(majority(&[(Lsn(100), &good)]), None);
    assert_eq!(majority(&[(Lsn(100), &good), (Lsn(100), &bad)]), None);
    assert_eq!(majority(&[(Lsn(100), &good), (Lsn(40), &behind)]), None);
    let nothing = history(&[]);
    assert_eq!(
        majority(&[(Lsn(100), &nothing), (Lsn(100), &nothing)]),
        None
    );
}

/// Terms rise, positions never fall; often some of the other history's.
fn histories() -> impl Strategy<Value = (TermHistory, TermHistory)> {
    let steps = || prop::collection::vec((1..3_u64, 0..6_u64), 0..8);
    (steps(), steps(), 0..9_usize).prop_map(|(ours, theirs, shared)| {
        let grown = |steps: &[(u64, u64)]| -> TermHistory {
            let (mut term, mut lsn) = (0, 0);
            let entries = steps.iter().enumerate().map(|(index, (terms, bytes))| {
                term += terms;
                // All logs of a timeline begin at the same place.
                lsn += if index == 0 { 0 } else { *bytes };
                TermStart {
                    term: Term(term),
                    start_lsn: Lsn(lsn),
                }
            });
            entries.collect()
        };
        let kept = ours.iter().take(shared).copied();
        let theirs: Vec<(u64, u64)> = kept.chain(theirs.iter().skip(shared).copied()).collect();
        (grown(&ours), grown(&theirs))
    })
}

/// The term that wrote the byte, found in the simplest way.
fn writer(history: &TermHistory, byte: u64) -> Term {
    history.term_at(Lsn(byte))
}

proptest! {
    /// Promise: a log is taken for the one that was ingested if and only if the same term wrote every byte of it
    /// below the position, as far as the log is committed.
    #[test]
    fn logs_are_the_same_if_and_only_if_the_same_terms_wrote_them(
        (ours, theirs) in histories(), position in 0..50_u64, committed in 0..50_u64,
    ) {
        let nothing = ours.entries().is_empty() || theirs.entries().is_empty();
        let to = if nothing { 0 } else { position.min(committed) };
        let first = (0..to).find(|byte| writer(&ours, *byte) != writer(&theirs, *byte));
        let found = ingested(ours, position).compare(&theirs, Lsn(committed));
        prop_assert_eq!(found.err().map(|other| other.at.0), first);
    }

    /// Promise: what is stored says the same as what is known.
    #[test]
    fn what_is_stored_says_the_same(
        (ours, theirs) in histories(), position in 0..50_u64, committed in 0..50_u64,
    ) {
        let known = ingested(ours, position);
        prop_assert_eq!(
            known.cut().compare(&theirs, Lsn(committed)).is_ok(),
            known.compare(&theirs, Lsn(committed)).is_ok()
        );
    }

    /// Promise: WAL that was ingested of a log makes its history the one that counts, and takes nothing back of what
    /// was known: a log that was refused before is refused after.
    #[test]
    fn what_is_learned_is_the_history_that_was_followed(
        (ours, theirs) in histories(), third in histories(), at in 1..50_u64, more in 0..20_u64, committed in 1..70_u64,
    ) {
        let mut known = ingested(ours, at + more);
        let (before, committed) = (known.clone(), Lsn(committed.max(at)));
        if known.compare_at(Lsn(at), &theirs, committed).is_ok() {
            let settled = known.follow(&theirs, committed);
            prop_assert_eq!(settled, committed >= known.up_to);
            for byte in 0..if settled { 80 } else { 0 } {
                prop_assert_eq!(writer(&known.terms, byte), writer(&theirs, byte));
            }
            if !before.terms.entries().is_empty() && before.compare(&third.0, Lsn::MAX).is_err() {
                prop_assert!(known.compare(&third.0, Lsn::MAX).is_err());
            }
        }
    }
}
