//! Exits of containers' first processes, reported by the kernel before the runtime notices.

use std::collections::{BTreeMap, HashMap};

use futures::StreamExt;
use futures::future::{AbortHandle, Abortable, LocalBoxFuture};
use futures::stream::FuturesUnordered;

use polylet_model::PodUid;

use crate::core::PodStatus;
use crate::pidfd::{self, Pidfd, ProcessLookup};

/// File descriptors left for everything else.
const RESERVED_FILES: u64 = 128;

/// Resolves to the id of a container whose process has exited.
type ExitEvent = Abortable<LocalBoxFuture<'static, String>>;

/// Watches the first process of every running container, at one file descriptor each.
pub(crate) struct ExitWatcher {
    /// Watched processes by pod uid and container id.
    watches: HashMap<PodUid, BTreeMap<String, AbortHandle>>,
    exits: FuturesUnordered<ExitEvent>,
    capacity: usize,
    /// Process ids mean the same here as to the runtime.
    host_pids: bool,
}

impl ExitWatcher {
    /// `open_file_limit`: `None` for no limit. `host_pids`: whether process ids are known to mean the
    /// same here as to the runtime.
    pub(crate) fn new(open_file_limit: Option<u64>, host_pids: bool) -> Self {
        let capacity = open_file_limit.map_or(u64::MAX, |all| all.saturating_sub(RESERVED_FILES));
        Self {
            watches: HashMap::new(),
            exits: FuturesUnordered::new(),
            capacity: usize::try_from(capacity).unwrap_or(usize::MAX),
            host_pids,
        }
    }

    /// Watches `pid`, the first process of a running container. True when it has exited already.
    /// Without a free file descriptor or the permission it is not watched.
    pub(crate) fn watch(&mut self, pod_uid: &str, container_id: &str, pid: i32) -> bool {
        let pod = self.watches.get(pod_uid);
        let watched = pod.is_some_and(|pod| pod.contains_key(container_id));
        if watched || self.exits.len() >= self.capacity {
            return false;
        }
        match pidfd::lookup(pid, container_id) {
            // Proves an exit only where process ids are known to mean the same.
            Ok(ProcessLookup::NotFound) => self.host_pids,
            Ok(ProcessLookup::OtherProcess) => false,
            Ok(ProcessLookup::Found(process)) => {
                self.host_pids = true;
                self.add(pod_uid, container_id, process);
                false
            }
            Err(error) => {
                let error = polylet_kit::report(&error);
                tracing::debug!(container_id, error, "failed to watch container process");
                false
            }
        }
    }

    fn add(&mut self, pod_uid: &str, container_id: &str, process: Pidfd) {
        let (handle, registration) = AbortHandle::new_pair();
        let id = container_id.to_owned();
        let exit: LocalBoxFuture<'static, String> = Box::pin(async move {
            process.exited().await;
            id
        });
        self.exits.push(Abortable::new(exit, registration));
        let pod = self.watches.entry(pod_uid.into()).or_default();
        pod.insert(container_id.to_owned(), handle);
    }

    /// Stops watching containers that no longer run. `status` is `None` for a pod that is gone.
    pub(crate) fn retain_running(&mut self, pod_uid: &str, status: Option<&PodStatus>) {
        let Some(pod) = self.watches.get_mut(pod_uid) else {
            return;
        };
        pod.retain(|id, handle| {
            let running = status.is_some_and(|status| status.is_running(id));
            if !running {
                handle.abort();
            }
            running
        });
        if pod.is_empty() {
            self.watches.remove(pod_uid);
        }
    }

    /// The id of the next container whose process exits. Pending while there is none.
    pub(crate) async fn next(&mut self) -> String {
        while let Some(exit) = self.exits.next().await {
            if let Ok(id) = exit {
                return id;
            }
        }
        std::future::pending().await
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.exits.len()
    }
}

#[cfg(test)]
#[path = "exit_watcher_tests.rs"]
mod tests;
