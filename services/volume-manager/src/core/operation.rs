//! Operations on volumes, and how far they are.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use polylet_model::PodUid;
use polylet_schedule::BackoffPolicy;

use super::layout::VolumeId;
use super::mount_plan::MountPlan;
use super::resize;

/// One operation. All are idempotent.
#[derive(Debug, Clone, PartialEq)]
pub enum Operation {
    /// Set a volume up exactly by this plan.
    SetUp(VolumeId, Arc<MountPlan>),
    /// Update a volume that is mounted.
    Update(VolumeId, Arc<MountPlan>, VolumeUpdate),
    /// Unmount a volume and delete what belongs to the pod.
    TearDown(VolumeId),
    /// Delete the directory of a pod that has no volumes any more.
    RemovePodDir(PodUid),
}

impl Operation {
    /// The uid of the pod.
    pub fn pod_uid(&self) -> &PodUid {
        match self {
            Self::SetUp(id, _) | Self::Update(id, _, _) | Self::TearDown(id) => &id.uid,
            Self::RemovePodDir(uid) => uid,
        }
    }

    /// The volume, unless the operation is on the pod's directory.
    pub fn volume(&self) -> Option<&VolumeId> {
        match self {
            Self::SetUp(id, _) | Self::Update(id, _, _) | Self::TearDown(id) => Some(id),
            Self::RemovePodDir(_) => None,
        }
    }

    /// The name for logs.
    pub fn name(&self) -> &'static str {
        match self {
            Self::SetUp(..) => "set up",
            Self::Update(_, _, VolumeUpdate::Republish) => "republish",
            Self::Update(_, _, VolumeUpdate::Expand) => "expand",
            Self::TearDown(_) => "tear down",
            Self::RemovePodDir(_) => "remove pod directory",
        }
    }
}

/// An update of a mounted volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VolumeUpdate {
    /// Call `NodePublishVolume` again.
    Republish,
    /// Expand the volume.
    Expand,
}

/// The result of an operation.
#[derive(Debug, Clone)]
pub struct OperationResult {
    /// The operation.
    pub operation: Operation,
    /// The error, if it failed.
    pub result: Result<(), OperationError>,
}

/// Why an operation failed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OperationError {
    /// Upstream's name of the failed step, unless it is the operation as a whole.
    pub step: Option<&'static str>,
    /// The error.
    pub message: String,
    /// Everything is done except the expansion, which the driver does not do while the volume is in
    /// use: it is not retried.
    pub in_use: bool,
    /// Something that the operation needs did not answer.
    pub not_responding: bool,
}

impl<T: Into<String>> From<T> for OperationError {
    fn from(message: T) -> Self {
        OperationError {
            message: message.into(),
            ..OperationError::default()
        }
    }
}

/// The state of operations on one volume or pod directory.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum OperationState {
    /// None is running.
    #[default]
    Idle,
    /// One is running.
    Running {
        /// The failures in a row before it.
        failures: u32,
    },
    /// The last one failed.
    Failed(FailedOperation),
}

/// An operation that failed and will be retried.
#[derive(Debug, Clone, PartialEq)]
pub struct FailedOperation {
    /// The last error.
    pub error: OperationError,
    /// The failures in a row.
    pub attempts: u32,
    /// The time of the next attempt.
    pub retry_at: Timestamp,
    /// The plan that failed; `None` for tearing down. Another plan does not wait for the retry.
    pub target: Option<Arc<MountPlan>>,
}

impl FailedOperation {
    /// Whether it was the expansion of a volume that is set up but for that.
    pub fn is_expansion(&self, is_set_up: bool) -> bool {
        let target = self.target.as_deref();
        let last_step = self.error.step.is_some_and(resize::is_expansion_step);
        target.is_some_and(|target| target.expansion().is_requested()) && (is_set_up || last_step)
    }
}

const BACKOFF: BackoffPolicy =
    BackoffPolicy::new(Duration::from_millis(500), Duration::from_secs(122));

impl OperationState {
    /// Starts an operation towards `target`; `None` for tearing down.
    pub fn start(&mut self, target: Option<&Arc<MountPlan>>) {
        let failures = match self {
            Self::Failed(failure) if failure.target.as_ref() == target => failure.attempts,
            _ => 0,
        };
        *self = Self::Running { failures };
    }

    /// The state after a failure.
    pub fn fail(
        &self,
        error: OperationError,
        target: Option<Arc<MountPlan>>,
        now: Timestamp,
    ) -> Self {
        let before = match self {
            Self::Running { failures } => *failures,
            _ => 0,
        };
        let attempts = before.saturating_add(1);
        let retry_at = now.checked_add(BACKOFF.delay(attempts)).unwrap_or(now);
        Self::Failed(FailedOperation {
            error,
            attempts,
            retry_at,
            target,
        })
    }

    /// Whether an operation towards `target` can start.
    ///
    /// # Errors
    /// When it can start, if time alone decides.
    pub fn can_start(
        &self,
        target: Option<&Arc<MountPlan>>,
        now: Timestamp,
    ) -> Result<(), Option<Timestamp>> {
        match self {
            Self::Idle => Ok(()),
            Self::Running { .. } => Err(None),
            Self::Failed(failure) if failure.target.as_ref() != target => Ok(()),
            Self::Failed(failure) if failure.retry_at <= now => Ok(()),
            Self::Failed(failure) => Err(Some(failure.retry_at)),
        }
    }
}
