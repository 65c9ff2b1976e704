//! Mistakes to plant, to see that the model finds them.

/// A mistake that real implementations have made, planted around the state machines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    /// A proposer reports as committed what one acceptor has fsynced.
    AckBeforeMajority,
    /// An acceptor takes WAL from a proposer of an older term.
    AcceptOldTerm,
    /// A proposer counts positions that an acceptor reported under another term.
    CountOtherTerms,
    /// A proposer counts acceptors that never adopted its history.
    CountBeforeAdoption,
    /// An acceptor reports WAL as flushed before its fsync is done.
    AckBeforeFsync,
    /// A vote is not on disk when the reply leaves.
    VoteNotStored,
    /// An acceptor stores the new history and dies before it has cut its log.
    HistoryBeforeCut,
    /// An acceptor cuts its log to the last position it stored instead of the common point.
    CutBelowCommit,
    /// A safekeeper that lost its disk is founded once more under the name it had.
    EmptyMemberVotes,
    /// A disk that was put back from an old copy keeps the name it had.
    RestoredDiskVotes,
    /// A learner votes, and its vote counts.
    LearnerVotes,
    /// Acceptors take WAL whatever generation its sender goes by, and what they hold counts under any.
    TwoGenerations,
    /// An acceptor that knows a newer configuration votes under an older one.
    VoteUnderOlder,
    /// A change of members is not on disk when the reply leaves.
    ConfigurationNotStored,
}

impl Bug {
    /// Every mistake once.
    pub const ALL: [Bug; 14] = [
        Bug::AckBeforeMajority,
        Bug::AcceptOldTerm,
        Bug::CountOtherTerms,
        Bug::CountBeforeAdoption,
        Bug::AckBeforeFsync,
        Bug::VoteNotStored,
        Bug::HistoryBeforeCut,
        Bug::CutBelowCommit,
        Bug::EmptyMemberVotes,
        Bug::RestoredDiskVotes,
        Bug::LearnerVotes,
        Bug::TwoGenerations,
        Bug::VoteUnderOlder,
        Bug::ConfigurationNotStored,
    ];

    /// The mistake whose variant has this name.
    pub fn named(name: &str) -> Option<Bug> {
        Bug::ALL.into_iter().find(|bug| format!("{bug:?}") == name)
    }
}
