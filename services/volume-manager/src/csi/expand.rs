//! Expansion of mounted volumes.

use std::path::Path;

use super::client;
use crate::core::csi_volume::CsiVolume;
use crate::volume::VolumeError;

/// Expands a volume. `FailedPrecondition` means that the driver does not do it while the volume is
/// in use.
pub(super) async fn expand(
    csi: &CsiVolume,
    staging: Option<&Path>,
    path: &Path,
) -> Result<(), VolumeError> {
    let expanded = client::expand(csi, staging, path).await;
    expanded.map_err(|error| match error.code {
        tonic::Code::FailedPrecondition => VolumeError::InUse(error),
        _ => error.into(),
    })
}
