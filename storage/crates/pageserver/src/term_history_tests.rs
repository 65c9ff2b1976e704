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

fn same(ours: &[(u64, u64)], ingested: u64, theirs: &[(u64, u64)], committed: u64) -> bool {
    compare(
        &history(ours),
        Lsn(ingested),
        &history(theirs),
        Lsn(committed),
    )
    .is_ok()
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

/// A log that was founded where ingest stood, as after the loss of all safekeepers, continues what was ingested.
#[test]
fn a_log_that_was_founded_later_is_compared_from_its_beginning_on() {
    let ours = history(&[(1, 0), (7, 100)]);
    let founded = history(&[(8, 200)]);
    let ingest = |theirs: &TermHistory, at| compare_to_ingest(&ours, Lsn(at), theirs).is_ok();
    assert!(ingest(&founded, 200));
    assert!(!ingest(&founded, 199), "who wrote 199 there?");
    assert!(!ingest(&founded, 201), "201 is of term 7 here");
    assert!(!ingest(&history(&[]), 200));
    let both = continued(&ours, &founded);
    assert_eq!(both, history(&[(1, 0), (7, 100), (8, 200)]));
    assert!(compare_to_ingest(&both, Lsn(250), &founded).is_ok());
    assert!(compare_to_ingest(&both, Lsn(250), &ours).is_err());
}

#[test]
fn an_error_names_both_histories_around_the_place() {
    let long: Vec<(u64, u64)> = (1..=20).map(|term| (term, term * 10)).collect();
    let mut other = long.clone();
    other[9].0 = 1000;
    other.truncate(10);
    let error = compare(&history(&long), Lsn(300), &history(&other), Lsn(400)).expect_err("other");
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
    let majority = |answers: &[(Lsn, &TermHistory)]| of_majority(answers, Lsn(100), 3);
    let later = history(&[(1, 0), (2, 50), (4, 100)]);
    assert_eq!(
        majority(&[(Lsn(100), &good), (Lsn(300), &later)]),
        Some(good.clone())
    );
    assert_eq!(
        majority(&[(Lsn(100), &bad), (Lsn(300), &good), (Lsn(300), &good)]),
        Some(good.clone())
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

/// Who wrote the byte, told in the simplest way.
fn writer(history: &TermHistory, byte: u64) -> Term {
    history.term_at(Lsn(byte))
}

proptest! {
    /// Promise: a log is taken for the one that was ingested if and only if the same term wrote every byte of it below the
    /// position, as far as the log is committed.
    #[test]
    fn logs_are_the_same_if_and_only_if_the_same_terms_wrote_them(
        (ours, theirs) in histories(), ingested in 0..50_u64, committed in 0..50_u64,
    ) {
        let to = if ours.entries().is_empty() || theirs.entries().is_empty() { 0 } else { ingested.min(committed) };
        let expected = (0..to).all(|byte| writer(&ours, byte) == writer(&theirs, byte));
        let found = compare(&ours, Lsn(ingested), &theirs, Lsn(committed));
        prop_assert_eq!(found.is_ok(), expected);
        if let Err(other) = found {
            let first = (0..to).find(|byte| writer(&ours, *byte) != writer(&theirs, *byte));
            prop_assert_eq!(Some(other.at.0), first);
        }
    }

    /// Promise: what is cut off when it is stored is only what says nothing of the position it is stored with.
    #[test]
    fn what_is_stored_says_the_same_of_all_that_is_durable(
        (ours, theirs) in histories(), ingested in 0..50_u64, later in 0..50_u64,
    ) {
        let stored = up_to(&ours, Lsn(ingested));
        let position = Lsn(ingested.min(later));
        prop_assert_eq!(
            compare(&stored, position, &theirs, Lsn::MAX).is_ok(),
            compare(&ours, position, &theirs, Lsn::MAX).is_ok()
        );
    }

    /// Promise: WAL that was ingested of a log keeps the others of its history, and nothing else, as sources.
    #[test]
    fn what_is_learned_is_the_history_that_was_followed((ours, theirs) in histories(), ingested in 0..50_u64) {
        if compare_to_ingest(&ours, Lsn(ingested), &theirs).is_ok() {
            let known = continued(&ours, &theirs);
            for byte in 0..60 {
                prop_assert_eq!(writer(&known, byte), writer(&theirs, byte));
            }
        }
    }
}
