//! Bugs put in by hand, to show that the laws find them.

/// A bug of the kind that a service could have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// A restarted coordinator does not read its journal.
    JournalForgotten,
    /// A restarted coordinator does not know which sandbox numbers it asked for.
    IntentsForgotten,
    /// A stream is taken for complete before its snapshot has come.
    SyncedTooSoon,
    /// A restarted prober does not know its verdicts. No bug that shows: what was told stands.
    VerdictsForgotten,
    /// image-gc does not see what containers use.
    UseUnseen,
    /// Volumes are released when the stop of containers begins, and not when it has ended.
    ReleasedEarly,
}
