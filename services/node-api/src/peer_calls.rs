//! What calls of peers have in common.

use std::time::Duration;

use tonic::{Code, Status};

/// Timeout of a question about the state of a peer.
pub(crate) const INFO_TIMEOUT: Duration = Duration::from_secs(3);
/// How often a call is repeated whose connection broke.
const MAX_REPEATS: usize = 2;

/// Repeats a call whose connection broke, because the peer was restarted. None of the calls changes anything,
/// and the next one waits in the backlog of the peer's socket.
pub(crate) async fn repeated<T, F>(call: impl Fn() -> F) -> Result<T, Status>
where
    F: Future<Output = Result<T, Status>>,
{
    for _ in 0..MAX_REPEATS {
        match call().await {
            Err(status) if is_broken(&status) => {}
            result => return result,
        }
    }
    call().await
}

/// Whether a call failed on its way, and not in the peer.
fn is_broken(status: &Status) -> bool {
    let is_timeout = matches!(status.code(), Code::Cancelled | Code::DeadlineExceeded);
    !is_timeout && std::error::Error::source(status).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[tokio::test]
    async fn broken_calls_are_repeated_and_failed_ones_are_not() {
        let broken = || Status::from_error(Box::new(std::io::Error::other("reset")));
        let calls = Cell::new(0);
        let call = |fail: fn(usize) -> bool, status: fn() -> Status| {
            let number = calls.get() + 1;
            calls.set(number);
            std::future::ready(if fail(number) {
                Err(status())
            } else {
                Ok(number)
            })
        };
        let once = repeated(|| call(|number| number == 1, broken)).await;
        assert_eq!(once.unwrap(), 2);

        calls.set(0);
        let failed = repeated(|| call(|_| true, || Status::unavailable("not yet"))).await;
        assert_eq!((failed.is_err(), calls.get()), (true, 1));

        calls.set(0);
        let always = repeated(|| call(|_| true, broken)).await;
        assert_eq!((always.is_err(), calls.get()), (true, 1 + MAX_REPEATS));
    }
}
