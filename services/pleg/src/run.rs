use std::time::Duration;

use futures::StreamExt;
use futures::future::LocalBoxFuture;
use futures::stream::FuturesUnordered;
use jiff::Timestamp;
use polylet_cri::Runtime;
use polylet_kit::CancellationToken;
use polylet_watch::Store;
use polylet_wire::pleg::v1::{PodState, WatchRuntimeResponse};
use tokio::sync::{mpsc, watch};

use crate::core::{Hint, Listing, Polled};
use crate::events::Wake;
use crate::exits::Exits;
use crate::look::{self, Look};
use crate::teller::{Call, Refresh, Teller};

/// All that can happen to this service.
pub(crate) enum Input {
    /// A caller wants to know a pod as it is now.
    Refresh(Refresh),
    /// The runtime told that something happened.
    Hint(Hint),
    /// Events flow from now on, or no longer.
    Events(bool),
    /// A full list ended.
    Relisted(u64, Result<Listing, String>),
    /// A look at one pod ended.
    Looked(String, Result<Look, String>),
    /// The first process of a container ended.
    ProcessEnded(String),
    /// The runtime was asked about itself.
    Polled(Result<Polled, String>),
    /// Something is due.
    Due,
}

/// Makes the calls, and waits for what happens.
pub(crate) struct Run {
    runtime: Runtime,
    wake: Wake,
    teller: Teller,
    calls: FuturesUnordered<LocalBoxFuture<'static, Input>>,
    exits: Exits,
}

impl Run {
    pub(crate) fn new(
        runtime: Runtime,
        store: Store<String, PodState>,
        reports: watch::Sender<WatchRuntimeResponse>,
        wake: Wake,
        exits: Exits,
    ) -> Self {
        Self {
            runtime,
            wake,
            teller: Teller::new(store, reports, Timestamp::now()),
            calls: FuturesUnordered::new(),
            exits,
        }
    }

    /// Runs until the drain. Calls under way are dropped then: none of them changes anything.
    pub(crate) async fn until(
        mut self,
        drain: CancellationToken,
        mut inbox: mpsc::UnboundedReceiver<Input>,
    ) {
        loop {
            self.act();
            let due = self.teller.due();
            let input = tokio::select! {
                () = drain.cancelled() => return,
                Some(ended) = self.calls.next() => ended,
                Some(input) = inbox.recv() => input,
                id = self.exits.next() => Input::ProcessEnded(id),
                () = sleep_until(due) => Input::Due,
            };
            self.take(input);
        }
    }

    fn take(&mut self, input: Input) {
        let now = Timestamp::now();
        let teller = &mut self.teller;
        match input {
            Input::Refresh(refresh) => teller.refresh(refresh),
            Input::Hint(hint) => teller.hint(hint, now),
            Input::Events(flow) => teller.events(flow, now),
            Input::Relisted(turn, result) => teller.relisted(turn, result, now),
            Input::Looked(uid, Ok(look)) => {
                teller.looked(&uid, Ok(look.seen), now);
                for (id, pid) in look.pids {
                    if self.exits.follow(&uid, &id, pid) {
                        teller.process_ended(&id, now);
                    }
                }
            }
            Input::Looked(uid, Err(error)) => teller.looked(&uid, Err(error), now),
            Input::ProcessEnded(id) => teller.process_ended(&id, now),
            Input::Polled(answer) => {
                if teller.polled(answer, now) {
                    self.wake.notify_one();
                }
            }
            Input::Due => {}
        }
    }

    fn act(&mut self) {
        let exits = &mut self.exits;
        let calls = self
            .teller
            .act(Timestamp::now(), |uid, state| exits.keep(uid, state));
        for call in calls {
            self.call(call);
        }
    }

    fn call(&mut self, call: Call) {
        let runtime = self.runtime.clone();
        self.calls.push(match call {
            Call::Poll => Box::pin(async move { Input::Polled(look::poll(&runtime).await) }),
            Call::List { turn } => {
                Box::pin(async move { Input::Relisted(turn, look::list(&runtime).await) })
            }
            Call::Look { uid, view, known } => Box::pin(async move {
                let seen = look::inspect(&runtime, &uid, view, &known).await;
                Input::Looked(uid, seen)
            }),
        });
    }
}

async fn sleep_until(due: Option<Timestamp>) {
    let Some(due) = due else {
        return std::future::pending().await;
    };
    let wait = Timestamp::now().duration_until(due);
    // At most a minute, because the clock may be set meanwhile.
    let wait = Duration::try_from(wait)
        .unwrap_or_default()
        .min(Duration::from_secs(60));
    tokio::time::sleep(wait).await;
}

#[cfg(test)]
mod tests;
