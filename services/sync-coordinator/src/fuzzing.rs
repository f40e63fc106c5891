//! Private parsers of foreign data, for the fuzz targets in `tests/fuzz`.

use std::path::Path;

use crate::checkpoint::RestoredState;
use crate::checkpoint::kubelet_checkpoint;
use crate::checkpoint::lifecycle_store::LifecycleStore;
use crate::checkpoint::pod_store::CheckpointStore;
use crate::runtime::cgroup::{pod_settings, qos};
use crate::runtime::image::credentials;
use crate::runtime::image::records::PullRecords;

/// Parses values of cgroup files.
pub fn cgroup_values(text: &str) {
    pod_settings::parse_limit(text);
    qos::reclaimable(text, true);
}

/// Loads the state files of the service below this directory, and those of a kubelet.
pub fn state_files(dir: &Path) -> RestoredState {
    let mut restored = RestoredState::default();
    if let Ok((_, stored)) = CheckpointStore::open(&dir.join("state"), &dir.join("run")) {
        restored.checkpoints = stored.pods;
        restored.pending_sandboxes = stored.attempts;
    }
    if let Ok((_, lifecycles)) = LifecycleStore::open(&dir.join("run")) {
        restored.lifecycles = lifecycles;
    }
    restored.kubelet_allocations = kubelet_checkpoint::read(&dir.join("root"));
    // The directories are there.
    let _ = PullRecords::open(&dir.join("root"));
    restored
}

/// Parses an image pull Secret.
pub fn pull_secret(json: &[u8]) {
    if let Ok(secret) = serde_json::from_slice(json) {
        // Most Secrets are invalid.
        let _ = credentials::logins(&secret, "default", "s");
    }
}
