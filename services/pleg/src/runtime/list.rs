use std::collections::HashMap;

use polylet_cri::{RuntimeClient, labels, v1};
use polylet_kit::report;

use super::{LIST_TIMEOUT, STATUS_TIMEOUT};
use crate::convert;
use crate::core::{ListedPod, PodListing};

/// Lists all sandboxes and containers.
pub(crate) async fn list(runtime: &RuntimeClient) -> Result<PodListing, String> {
    let runtime = runtime.with_timeout(LIST_TIMEOUT.min(runtime.timeout()));
    let (sandboxes, containers) = futures::try_join!(
        runtime.list_pod_sandboxes(None),
        runtime.list_containers(None)
    )
    .map_err(|error| report(&error))?;
    Ok(convert::listing(sandboxes, containers))
}

/// Lists the sandboxes and containers of one pod.
pub(super) async fn list_pod(runtime: &RuntimeClient, uid: &str) -> Result<ListedPod, String> {
    let runtime = runtime.with_timeout(STATUS_TIMEOUT.min(runtime.timeout()));
    let selector: HashMap<_, _> = [(labels::POD_UID.to_owned(), uid.to_string())].into();
    let sandboxes = v1::PodSandboxFilter {
        label_selector: selector.clone(),
        ..Default::default()
    };
    let containers = v1::ContainerFilter {
        label_selector: selector,
        ..Default::default()
    };
    let (sandboxes, containers) = futures::try_join!(
        runtime.list_pod_sandboxes(Some(sandboxes)),
        runtime.list_containers(Some(containers))
    )
    .map_err(|error| report(&error))?;
    Ok(convert::listing(sandboxes, containers)
        .remove(uid)
        .unwrap_or_default())
}
