//! When the tasks of a process begin.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Semaphore;
use tokio::task::yield_now;

/// Turns of the executor until calls that waited for the socket have their responses: one each to accept,
/// read, handle and write, and as many again for callers that had to be woken.
const FIRST_CALLS: u32 = 8;

/// Holds the tasks of a service back until it serves, and then begins them one at a time. Their first
/// steps (clients are built, files are parsed) take milliseconds together, on the thread that has to
/// answer the calls which waited for this process.
#[derive(Clone)]
pub(crate) struct StartGate {
    turns: Arc<Semaphore>,
    waiting: Arc<AtomicUsize>,
}

impl StartGate {
    pub(crate) fn closed() -> Self {
        Self {
            turns: Arc::new(Semaphore::new(0)),
            waiting: Arc::default(),
        }
    }

    /// Resolves when it is the caller's turn, in the order of the calls of this function; at once when the
    /// gate is open.
    pub(crate) fn turn(&self) -> impl Future<Output = ()> + 'static {
        let gate = self.clone();
        gate.waiting.fetch_add(1, Ordering::Relaxed);
        async move {
            // An error says that the gate is open.
            if let Ok(turn) = gate.turns.acquire().await {
                turn.forget();
            }
        }
    }

    /// Lets the tasks begin, and those that come later without delay.
    pub(crate) async fn open(self) {
        for _ in 0..FIRST_CALLS {
            yield_now().await;
        }
        for _ in 0..self.waiting.load(Ordering::Relaxed) {
            self.turns.add_permits(1);
            yield_now().await;
        }
        self.turns.close();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;

    #[tokio::test(flavor = "local")]
    async fn tasks_begin_in_their_order_with_turns_of_others_between_them() {
        let gate = StartGate::closed();
        let seen = Rc::new(RefCell::new(Vec::new()));
        for name in ["first", "second"] {
            let (turn, seen) = (gate.turn(), Rc::clone(&seen));
            tokio::task::spawn_local(async move {
                turn.await;
                seen.borrow_mut().push(name);
            });
        }
        for _ in 0..10 {
            yield_now().await;
        }
        assert!(seen.borrow().is_empty(), "the gate is closed");
        let opening = tokio::task::spawn_local(gate.clone().open());
        let calls = Rc::clone(&seen);
        let others = tokio::task::spawn_local(async move {
            while calls.borrow().len() < 4 {
                calls.borrow_mut().push("call");
                yield_now().await;
            }
        });
        others.await.unwrap();
        assert_eq!(*seen.borrow(), ["call"; 4], "calls are answered first");
        opening.await.unwrap();
        assert_eq!(seen.borrow().get(4..), Some(&["first", "second"][..]));
        gate.turn().await;
    }
}
