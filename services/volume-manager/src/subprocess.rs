//! The child processes of this service: calls that can hang on a foreign file system, and walks of
//! large trees. The tasks are beside the code that they run, in [`volume`](crate::volume).

use std::path::PathBuf;
use std::time::Duration;

use polylet_kit::subprocess::{SubprocessError, SubprocessLimits, SubprocessPool, SubprocessTask};
use polylet_kit::{CancellationToken, ServiceDescriptor};

/// Calls last a moment, unless their file system does not answer.
const CALLS: SubprocessLimits = SubprocessLimits {
    active: 8,
    total: 256,
    per_pod: 4,
};
/// Walks keep a disk busy.
const WALKS: SubprocessLimits = SubprocessLimits {
    active: 3,
    total: 256,
    per_pod: 2,
};

/// Runs tasks in child processes. Clones share the bounds.
#[derive(Debug, Clone)]
pub struct Subprocesses {
    calls: SubprocessPool,
    walks: SubprocessPool,
}

impl Subprocesses {
    /// Children of the service.
    pub fn new(descriptor: &ServiceDescriptor) -> Self {
        Self {
            calls: SubprocessPool::new(descriptor, CALLS),
            walks: SubprocessPool::new(descriptor, WALKS),
        }
    }

    /// Children of this binary, with this deadline for all tasks.
    #[must_use]
    pub fn with_binary_and_deadline(self, binary: impl Into<PathBuf>, deadline: Duration) -> Self {
        let binary = binary.into();
        let replace =
            |pool: SubprocessPool| pool.with_binary(binary.clone()).with_deadline(deadline);
        Self {
            calls: replace(self.calls),
            walks: replace(self.walks),
        }
    }

    /// Runs a call for a pod to its end or its deadline.
    pub async fn call<T: SubprocessTask>(
        &self,
        pod_uid: &str,
        task: &T,
    ) -> Result<T::Output, SubprocessError> {
        self.call_until(pod_uid, task, &CancellationToken::new())
            .await
    }

    /// The same, unless it is canceled.
    pub async fn call_until<T: SubprocessTask>(
        &self,
        pod_uid: &str,
        task: &T,
        cancel: &CancellationToken,
    ) -> Result<T::Output, SubprocessError> {
        self.calls.run(task, Some(pod_uid), cancel).await
    }

    /// Runs a walk for a pod as long as it makes progress.
    pub async fn walk<T: SubprocessTask>(
        &self,
        pod_uid: &str,
        task: &T,
        cancel: &CancellationToken,
        on_progress: impl FnMut(T::Progress),
    ) -> Result<T::Output, SubprocessError> {
        self.walks
            .run_with_progress(task, Some(pod_uid), cancel, on_progress)
            .await
    }
}
