//! Whether this process may still change its state: it may until it leaves it to the next process.

use std::io;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

static OF_PROCESS: Access = Access::new();

/// Waits until no file is being written, and refuses to write any from then on. `false` if one is still being
/// written after `timeout`: then nothing is refused. Blocks.
pub(crate) fn close(timeout: Duration) -> bool {
    OF_PROCESS.close(timeout)
}

/// A change of a file in progress.
pub(super) struct Writing<'a>(&'a Access);

impl Writing<'static> {
    /// # Errors
    /// The state belongs to the next process.
    pub(super) fn start() -> io::Result<Self> {
        OF_PROCESS.start()
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        let mut changes = self.0.lock();
        changes.in_progress = changes.in_progress.saturating_sub(1);
        self.0.changed.notify_all();
    }
}

struct Access {
    changes: Mutex<Changes>,
    changed: Condvar,
}

struct Changes {
    in_progress: usize,
    closed: bool,
}

impl Access {
    const fn new() -> Self {
        Self {
            changes: Mutex::new(Changes {
                in_progress: 0,
                closed: false,
            }),
            changed: Condvar::new(),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Changes> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start(&self) -> io::Result<Writing<'_>> {
        let mut changes = self.lock();
        if changes.closed {
            return Err(io::Error::other("the state belongs to the next process"));
        }
        changes.in_progress = changes.in_progress.saturating_add(1);
        Ok(Writing(self))
    }

    fn close(&self, timeout: Duration) -> bool {
        let writing = |changes: &mut Changes| changes.in_progress > 0;
        let waited = self
            .changed
            .wait_timeout_while(self.lock(), timeout, writing);
        let (mut changes, _) = waited.unwrap_or_else(PoisonError::into_inner);
        changes.closed |= changes.in_progress == 0;
        changes.closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn state_is_closed_once_nothing_is_written() {
        let access = Access::new();
        let first = access.start().unwrap();
        let second = access.start().unwrap();
        drop(first);
        assert!(!access.close(Duration::ZERO), "one is still being written");
        drop(access.start().unwrap());
        std::thread::scope(|scope| {
            let closing = scope.spawn(|| access.close(LONG));
            drop(second);
            assert!(closing.join().unwrap());
        });
        assert!(access.start().is_err());
        assert!(access.close(Duration::ZERO));
    }
}
