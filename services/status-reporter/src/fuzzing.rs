//! Private parsers of foreign data, for the fuzz targets in `tests/fuzz`.

use std::collections::BTreeMap;
use std::path::Path;

use k8s_openapi::api::core::v1::PodStatus;
use polylet_model::PodUid;

use crate::certificates::store;
use crate::core::report::patch;
use crate::core::shared_status::SharedStatus;
use crate::state_file::{PersistedStatuses, StateWriter};

/// Reads a certificate of the certificate directory.
pub fn certificate(pem: &[u8]) {
    store::read(pem);
    store::subject(pem);
}

/// Computes the patch between two statuses.
pub fn status_patch(old: &[u8], new: &[u8]) {
    let parse = |status| serde_json::from_slice::<PodStatus>(status);
    if let (Ok(old), Ok(new)) = (parse(old), parse(new)) {
        patch::between("u", &old, &new);
        assert!(
            patch::between("u", &new, &new).is_none(),
            "a patch without changes"
        );
    }
}

/// Loads the state files of the service in this directory.
pub fn state_files(dir: &Path) -> BTreeMap<PodUid, SharedStatus> {
    let _ = StateWriter::<BTreeMap<String, (String, u64)>>::open(dir.join("notices.json"));
    let opened = StateWriter::<PersistedStatuses>::open(dir.join("statuses.json"));
    opened
        .map(|(_, stored)| stored.statuses)
        .unwrap_or_default()
}
