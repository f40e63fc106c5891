//! The usage of volumes, as their drivers report it.

use std::path::Path;

use futures::future::join_all;
use polylet_kit::report;

use super::client::{self, DriverUsage};
use super::volume::staging_path;
use crate::core::layout::Layout;
use crate::core::state_of_world::MountedVolume;

/// The usage of each volume, from all drivers at once; empty where a driver does not answer.
pub async fn usage(
    layout: &Layout,
    mounted: Vec<MountedVolume>,
) -> Vec<(MountedVolume, DriverUsage)> {
    let calls = mounted.into_iter().map(|volume| async move {
        let usage = match volume.driver.as_ref().and_then(Option::as_ref) {
            Some(csi) => {
                let staging = staging_path(layout, csi);
                let path = Path::new(&volume.host_path);
                client::stats(csi, staging.as_deref(), path).await
            }
            None => Ok(DriverUsage::default()),
        };
        let usage = usage.unwrap_or_else(|error| {
            let error = report(&error);
            tracing::debug!(volume = volume.name, error, "no volume stats from driver");
            DriverUsage::default()
        });
        (volume, usage)
    });
    join_all(calls).await
}
