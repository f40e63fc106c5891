//! The end of the services.

use std::time::Duration;

use rustix::process::Signal;
use tokio::sync::mpsc::UnboundedReceiver;

use super::{STOP_TIMEOUT, ServiceManager};
use crate::core::order::{SERVICES, stop_groups};
use crate::run::input::Input;
use crate::run::table::ServiceEntry;

/// How long to wait for killed services before the supervisor exits without them.
const KILL_TIMEOUT: Duration = Duration::from_secs(2);

impl ServiceManager<'_> {
    /// Stops the services, callers first, each group with a timeout.
    pub(in crate::run) async fn stop_all(&mut self, incoming: &mut UnboundedReceiver<Input>) {
        self.stopping = true;
        for group in stop_groups(&SERVICES) {
            self.signal(&group, Signal::TERM);
            if tokio::time::timeout(STOP_TIMEOUT, self.wait_for_exit(&group, incoming))
                .await
                .is_ok()
            {
                continue;
            }
            for at in &group {
                let entry = self.entries.get(*at);
                if let Some(entry) = entry.filter(|entry| !entry.has_ended()) {
                    let service = entry.name;
                    tracing::warn!(service, "service did not stop in time; killing it");
                }
            }
            self.kill(&group, incoming).await;
        }
    }

    /// Kills all services that are still running.
    pub(in crate::run) async fn kill_all(&mut self, incoming: &mut UnboundedReceiver<Input>) {
        let all: Vec<usize> = (0..self.entries.len()).collect();
        self.kill(&all, incoming).await;
    }

    async fn kill(&mut self, group: &[usize], incoming: &mut UnboundedReceiver<Input>) {
        self.signal(group, Signal::KILL);
        let _ = tokio::time::timeout(KILL_TIMEOUT, self.wait_for_exit(group, incoming)).await;
    }

    pub(super) fn signal(&mut self, group: &[usize], signal: Signal) {
        for at in group {
            let Some(entry) = self.entries.get_mut(*at) else {
                continue;
            };
            for predecessor in &entry.predecessors {
                predecessor.child.signal(signal);
            }
            if let Some(running) = entry.running() {
                running.child.signal(signal);
            }
        }
    }

    fn has_ended(&self, at: usize) -> bool {
        self.entries.get(at).is_none_or(ServiceEntry::has_ended)
    }

    async fn wait_for_exit(&mut self, group: &[usize], incoming: &mut UnboundedReceiver<Input>) {
        while !group.iter().all(|at| self.has_ended(*at)) {
            match incoming.recv().await {
                Some(input) => self.handle_input(input),
                None => return,
            }
        }
    }
}
