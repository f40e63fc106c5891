//! Calls of the kernel that may never return, such as `statvfs`, on a blocking thread. For what is
//! cheap and asked for again and again; for anything larger there is [`crate::subprocess`].

use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Calls of one kind, one at a time: however often a call that hangs is repeated, it occupies one
/// thread.
#[derive(Debug)]
pub struct BlockingCall<T> {
    in_flight: Option<(JoinHandle<T>, Instant)>,
}

/// A call without a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BlockingCallError {
    /// It has not returned for this many seconds.
    #[error("no answer for {0} s")]
    NotResponding(u64),
    /// It panicked.
    #[error("the call panicked")]
    Panicked,
}

impl<T> Default for BlockingCall<T> {
    fn default() -> Self {
        Self { in_flight: None }
    }
}

impl<T: Send + 'static> BlockingCall<T> {
    /// Waits for the call, at most for `deadline`. While an earlier one has not returned, that is
    /// waited for instead, and its result is returned.
    ///
    /// # Errors
    /// When it does not return in time, or panics.
    pub async fn run(
        &mut self,
        deadline: Duration,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, BlockingCallError> {
        let (handle, since) = self
            .in_flight
            .get_or_insert_with(|| (tokio::task::spawn_blocking(call), Instant::now()));
        let Ok(ended) = timeout(deadline, handle).await else {
            return Err(BlockingCallError::NotResponding(since.elapsed().as_secs()));
        };
        self.in_flight = None;
        ended.map_err(|_| BlockingCallError::Panicked)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[tokio::test]
    async fn a_call_that_hangs_is_not_repeated() {
        let (release, released) = channel();
        let mut call = BlockingCall::default();
        let moment = Duration::from_millis(10);
        let hung = call.run(moment, move || {
            let _ = released.recv();
            1
        });
        assert_eq!(hung.await, Err(BlockingCallError::NotResponding(0)));
        assert!(call.run(moment, || 2).await.is_err());
        release.send(()).unwrap();
        assert_eq!(call.run(Duration::from_secs(60), || 3).await, Ok(1));
        assert_eq!(call.run(Duration::from_secs(60), || 4).await, Ok(4));
    }
}
