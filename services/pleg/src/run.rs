use std::time::Instant;

use futures::StreamExt;
use futures::future::LocalBoxFuture;
use futures::stream::FuturesUnordered;
use jiff::Timestamp;
use polylet_cri::RuntimeClient;
use polylet_kit::CancellationToken;
use polylet_kit::clock::{ClockSteps, sleep_until_opt};
use tokio::sync::mpsc;

use crate::events::EventWake;
use crate::exit_watcher::ExitWatcher;
use crate::input::Input;
use crate::manager::{Pleg, RuntimeCall};
use crate::metrics;
use crate::runtime::{self, TerminationMessageReader};

/// Feeds inputs to the manager and makes its calls to the runtime.
pub(crate) struct EventLoop {
    runtime: RuntimeClient,
    wake: EventWake,
    manager: Pleg,
    calls: FuturesUnordered<LocalBoxFuture<'static, Input>>,
    exits: ExitWatcher,
    messages: TerminationMessageReader,
    /// When the last list was begun.
    listed_at: Option<Instant>,
}

impl EventLoop {
    pub(crate) fn new(
        runtime: RuntimeClient,
        manager: Pleg,
        wake: EventWake,
        exits: ExitWatcher,
        messages: TerminationMessageReader,
    ) -> Self {
        Self {
            runtime,
            wake,
            manager,
            calls: FuturesUnordered::new(),
            exits,
            messages,
            listed_at: None,
        }
    }

    /// Runs until the drain. Calls in flight are dropped then: all of them are read-only.
    pub(crate) async fn run(
        mut self,
        drain: CancellationToken,
        mut inputs: mpsc::UnboundedReceiver<Input>,
    ) {
        let mut clock_steps = ClockSteps::subscribe();
        loop {
            self.reconcile();
            let due = self.manager.next_due();
            let input = tokio::select! {
                () = drain.cancelled() => return,
                Some(ended) = self.calls.next() => ended,
                Some(input) = inputs.recv() => input,
                container_id = self.exits.next() => Input::ProcessExited { container_id },
                () = sleep_until_opt(due) => Input::Timer,
                () = clock_steps.next() => Input::Timer,
            };
            self.handle_input(input);
            // Callers are answered between the many inspections of a start, on the same thread.
            tokio::task::yield_now().await;
        }
    }

    fn handle_input(&mut self, input: Input) {
        let now = Timestamp::now();
        let manager = &mut self.manager;
        match input {
            Input::Refresh(request) => manager.refresh(request),
            Input::RuntimeEvent(event) => manager.handle_event(event, now),
            Input::EventStream { active } => manager.set_event_stream(active, now),
            Input::Relisted { sequence, result } => manager.on_relisted(sequence, result, now),
            Input::Inspected { uid, result } => match result {
                Ok(result) => {
                    manager.on_inspected(&uid, Ok(result.inspected), now);
                    for (id, pid) in result.pids {
                        if self.exits.watch(uid.as_str(), &id, pid) {
                            manager.on_process_exited(&id, now);
                        }
                    }
                }
                Err(error) => manager.on_inspected(&uid, Err(error), now),
            },
            Input::ProcessExited { container_id } => manager.on_process_exited(&container_id, now),
            Input::HealthChecked(result) => {
                if manager.on_health_check(result, now) {
                    self.wake.notify_one();
                }
            }
            Input::Timer => {}
        }
    }

    fn reconcile(&mut self) {
        let exits = &mut self.exits;
        let calls = self.manager.reconcile(Timestamp::now(), |uid, status| {
            exits.retain_running(uid, status);
        });
        for call in calls {
            self.start(call);
        }
    }

    fn start(&mut self, call: RuntimeCall) {
        let (runtime, messages) = (self.runtime.clone(), self.messages.clone());
        self.calls.push(match call {
            RuntimeCall::CheckHealth => {
                Box::pin(async move { Input::HealthChecked(runtime::check_health(&runtime).await) })
            }
            RuntimeCall::List { sequence } => {
                let started = Instant::now();
                let former = self.listed_at.replace(started);
                metrics::count_interval(former.map(|former| started.duration_since(former)));
                Box::pin(async move {
                    let result = runtime::list(&runtime).await;
                    metrics::count_list(started.elapsed());
                    Input::Relisted { sequence, result }
                })
            }
            RuntimeCall::Inspect {
                uid,
                listed,
                cached,
            } => Box::pin(async move {
                let started = Instant::now();
                let result = runtime::inspect(&runtime, &messages, &uid, listed, &cached).await;
                metrics::count_inspection(started.elapsed());
                Input::Inspected { uid, result }
            }),
        });
    }
}

#[cfg(test)]
mod tests;
