//! What drivers say that their volumes hold, all asked at once.

use std::path::Path;

use futures::future::join_all;
use polylet_kit::report;
use polylet_wire::volume::v1::VolumeStats;

use super::client;
use super::volume::staged;
use crate::convert;
use crate::core::layout::Layout;
use crate::core::state::Mounted;

/// What is known of each volume; a driver that does not answer leaves its own out.
pub async fn of(layout: &Layout, mounted: Vec<Mounted>) -> Vec<VolumeStats> {
    let asked = mounted.into_iter().map(|volume| async move {
        let levels = match volume.driver.as_ref().and_then(Option::as_ref) {
            Some(csi) => {
                let staged = staged(layout, csi);
                let at = Path::new(&volume.host_path);
                client::stats(csi, staged.as_deref(), at).await
            }
            None => Ok((None, None)),
        };
        let levels = levels.unwrap_or_else(|error| {
            let (volume, error) = (&volume.name, report(&error));
            tracing::debug!(volume, error, "a driver does not say what its volume holds");
            (None, None)
        });
        convert::stats(volume, levels)
    });
    join_all(asked).await
}
