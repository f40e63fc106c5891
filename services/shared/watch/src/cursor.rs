//! The position of a watcher, and its next messages. Pure.

use std::collections::VecDeque;

use crate::log::{Batch, ChangeLog, KeyChange};
use crate::{Change, Position};

/// The position of one watcher in a store.
pub(crate) struct Cursor<K> {
    /// The only key that is watched; `None` for all.
    key: Option<K>,
    position: Option<Position>,
    /// The watcher was sent `Synced` at least once.
    synced: bool,
}

/// A message to send; values are shared with the store until then.
pub(crate) enum Queued<K, V> {
    Reset,
    /// With the revision of the change, which is not sent.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "the model tests what storing it would break")
    )]
    Change(u64, KeyChange<K, V>),
    Synced(Position),
}

impl<K, V> Queued<K, V> {
    pub(crate) fn into_change(self) -> Change<K, V> {
        match self {
            Queued::Reset => Change::Reset,
            Queued::Change(_, KeyChange::Upsert(item)) => Change::Upsert(item),
            Queued::Change(_, KeyChange::Remove(key)) => Change::Remove(key),
            Queued::Synced(position) => Change::Synced(position),
        }
    }
}

impl<K: Ord + Clone> Cursor<K> {
    pub(crate) fn new(resume_after: Option<Position>) -> Self {
        Cursor {
            key: None,
            position: resume_after,
            synced: false,
        }
    }

    /// The position of a watcher of one key.
    pub(crate) fn for_key(key: K, resume_after: Option<Position>) -> Self {
        Cursor {
            key: Some(key),
            ..Cursor::new(resume_after)
        }
    }

    /// Queues all that the watcher has not been sent, `Synced` last.
    pub(crate) fn refill<V>(&mut self, log: &ChangeLog<K, V>, queue: &mut VecDeque<Queued<K, V>>)
    where
        V: Clone + PartialEq,
    {
        let position = match log.next(self.position.as_ref(), self.key.as_ref()) {
            // A watcher that resumes at the current position must be sent `Synced`.
            Batch::Nothing if !self.synced && log.has_synced() => log.position(),
            Batch::Nothing => {
                // Other keys may have changed: their removals must not make the position too old.
                if self.synced {
                    self.position = Some(log.position());
                }
                return;
            }
            Batch::Snapshot(all, position) => {
                queue.push_back(Queued::Reset);
                queue.extend(
                    all.into_iter()
                        .map(|(at, item)| Queued::Change(at, KeyChange::Upsert(item))),
                );
                position
            }
            Batch::Changes(steps, position) => {
                queue.extend(steps.into_iter().map(|(at, step)| Queued::Change(at, step)));
                position
            }
        };
        queue.push_back(Queued::Synced(position.clone()));
        self.position = Some(position);
        self.synced = true;
    }

    /// The message that an idle stream repeats.
    pub(crate) fn idle<V>(&self) -> Option<Queued<K, V>> {
        self.position
            .clone()
            .filter(|_| self.synced)
            .map(Queued::Synced)
    }
}
