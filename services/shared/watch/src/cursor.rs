//! Where one watcher stands, and what it is sent from there. Pure.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::log::{Batch, Log, Step};
use crate::{Change, Position};

/// One watcher's place in a store.
pub(crate) struct Cursor {
    at: Option<Position>,
    /// The watcher was told `Synced` at least once.
    synced: bool,
}

/// A message to come; values are shared with the store until they are sent.
pub(crate) enum Queued<K, V> {
    Reset,
    /// With the revision of the change, which stays on this side of the wire.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "the model shows what storing it would break")
    )]
    Step(u64, Step<K, V>),
    Synced(Position),
}

impl<K, V: Clone> Queued<K, V> {
    pub(crate) fn into_change(self) -> Change<K, V> {
        match self {
            Queued::Reset => Change::Reset,
            Queued::Step(_, Step::Upsert(item)) => Change::Upsert(Arc::unwrap_or_clone(item)),
            Queued::Step(_, Step::Remove(key)) => Change::Remove(key),
            Queued::Synced(position) => Change::Synced(position),
        }
    }
}

impl Cursor {
    pub(crate) fn new(resume_after: Option<Position>) -> Self {
        Cursor {
            at: resume_after,
            synced: false,
        }
    }

    /// Puts everything that the watcher lacks into its queue, `Synced` last.
    pub(crate) fn refill<K, V>(&mut self, log: &Log<K, V>, queue: &mut VecDeque<Queued<K, V>>)
    where
        K: Ord + Clone,
        V: Clone + PartialEq,
    {
        let position = match log.next(self.at.as_ref()) {
            // A watcher that resumes where the store stands has to hear that it does.
            Batch::Nothing if !self.synced && log.is_whole() => log.position(),
            Batch::Nothing => return,
            Batch::Snapshot(all, position) => {
                queue.push_back(Queued::Reset);
                queue.extend(
                    all.into_iter()
                        .map(|(at, item)| Queued::Step(at, Step::Upsert(item))),
                );
                position
            }
            Batch::Changes(steps, position) => {
                queue.extend(steps.into_iter().map(|(at, step)| Queued::Step(at, step)));
                position
            }
        };
        queue.push_back(Queued::Synced(position.clone()));
        self.at = Some(position);
        self.synced = true;
    }

    /// What an idle stream repeats.
    pub(crate) fn idle<K, V>(&self) -> Option<Queued<K, V>> {
        self.at.clone().filter(|_| self.synced).map(Queued::Synced)
    }
}
