//! The ends of containers' first processes, told by the kernel before the runtime knows of them.

mod process;

use std::collections::{BTreeMap, HashMap};

use futures::StreamExt;
use futures::future::{AbortHandle, Abortable, LocalBoxFuture};
use futures::stream::FuturesUnordered;
use polylet_wire::pleg::v1::{ContainerPhase, PodState};

use self::process::{Found, Process};
pub(crate) use self::process::{raise_limit, sees_all};

/// Descriptors that stay free for everything else.
const SPARE: u64 = 128;

type Ending = Abortable<LocalBoxFuture<'static, String>>;

/// Waits for the first process of every container that runs. At rest it costs one descriptor each.
pub(crate) struct Exits {
    /// By pod and container.
    waits: HashMap<String, BTreeMap<String, AbortHandle>>,
    endings: FuturesUnordered<Ending>,
    room: usize,
    /// Process ids mean the same here as to the runtime.
    ours: bool,
}

impl Exits {
    /// For a process that may hold so many descriptors, and that knows or does not know that process
    /// ids mean the same here as to the runtime.
    pub(crate) fn new(descriptors: Option<u64>, ours: bool) -> Self {
        let room = descriptors.map_or(u64::MAX, |all| all.saturating_sub(SPARE));
        Self {
            waits: HashMap::new(),
            endings: FuturesUnordered::new(),
            room: usize::try_from(room).unwrap_or(usize::MAX),
            ours,
        }
    }

    /// Waits for the end of `pid`, the first process of a container that runs. Says whether it has
    /// ended already. Without a descriptor, or the right to one, there is no hint.
    pub(crate) fn follow(&mut self, uid: &str, id: &str, pid: i32) -> bool {
        let held = self.waits.get(uid).is_some_and(|pod| pod.contains_key(id));
        if held || self.endings.len() >= self.room {
            return false;
        }
        match process::find(pid, id) {
            // Only where others were found is one that is not there known to have ended.
            Ok(Found::None) => self.ours,
            Ok(Found::Stranger) => false,
            Ok(Found::Process(process)) => {
                self.ours = true;
                self.wait(uid, id, process);
                false
            }
            Err(error) => {
                let error = polylet_kit::report(&error);
                tracing::debug!(error, "no hint of a container's end");
                false
            }
        }
    }

    fn wait(&mut self, uid: &str, id: &str, process: Process) {
        let (handle, registration) = AbortHandle::new_pair();
        let container = id.to_owned();
        let ending: LocalBoxFuture<'static, String> = Box::pin(async move {
            process.ended().await;
            container
        });
        self.endings.push(Abortable::new(ending, registration));
        let pod = self.waits.entry(uid.to_owned()).or_default();
        pod.insert(id.to_owned(), handle);
    }

    /// What is known of a pod by now, if it is still there: nothing else of it is waited for.
    pub(crate) fn keep(&mut self, uid: &str, state: Option<&PodState>) {
        let Some(pod) = self.waits.get_mut(uid) else {
            return;
        };
        pod.retain(|id, handle| {
            let runs = state.is_some_and(|state| {
                let mut all = state.containers.iter();
                all.any(|c| c.id == *id && c.phase() == ContainerPhase::Running)
            });
            if !runs {
                handle.abort();
            }
            runs
        });
        if pod.is_empty() {
            self.waits.remove(uid);
        }
    }

    /// The next container whose process ended; for ever, when there is none.
    pub(crate) async fn next(&mut self) -> String {
        while let Some(ended) = self.endings.next().await {
            if let Ok(id) = ended {
                return id;
            }
        }
        std::future::pending().await
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.endings.len()
    }
}

#[cfg(test)]
#[path = "exits_tests.rs"]
mod tests;
