use std::collections::HashMap;

use polylet_cri::{Runtime, labels, v1};

use super::{LIST_LIMIT, STATUS_LIMIT, tell};
use crate::convert;
use crate::core::{Listing, PodView};

/// Everything the runtime holds.
pub(crate) async fn list(runtime: &Runtime) -> Result<Listing, String> {
    let runtime = runtime.with_timeout(LIST_LIMIT.min(runtime.timeout()));
    let (sandboxes, containers) = futures::try_join!(
        runtime.list_pod_sandboxes(None),
        runtime.list_containers(None)
    )
    .map_err(|error| tell(&error))?;
    Ok(convert::listing(sandboxes, containers))
}

/// What the runtime holds of one pod.
pub(super) async fn list_pod(runtime: &Runtime, uid: &str) -> Result<PodView, String> {
    let runtime = runtime.with_timeout(STATUS_LIMIT.min(runtime.timeout()));
    let wanted: HashMap<_, _> = [(labels::POD_UID.to_owned(), uid.to_owned())].into();
    let sandboxes = v1::PodSandboxFilter {
        label_selector: wanted.clone(),
        ..Default::default()
    };
    let containers = v1::ContainerFilter {
        label_selector: wanted,
        ..Default::default()
    };
    let (sandboxes, containers) = futures::try_join!(
        runtime.list_pod_sandboxes(Some(sandboxes)),
        runtime.list_containers(Some(containers))
    )
    .map_err(|error| tell(&error))?;
    Ok(convert::listing(sandboxes, containers)
        .remove(uid)
        .unwrap_or_default())
}
