//! The node's status out of its facts.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    ContainerImage, DaemonEndpoint, NodeAddress, NodeDaemonEndpoints, NodeFeatures, NodeStatus,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use polylet_model::node::ResourceList;
use polylet_model::quantity::{self, Amount};

use super::conditions::conditions;
use super::extended_resources;
use super::facts::{NodeFacts, NodeImage, NodeSettings};

/// Names of an image in the status at most, as upstream (`maxNamesPerImageInNodeStatus`).
const MAX_NAMES: usize = 5;

/// The desired status, based on the current one: fields of others stay.
pub(crate) fn status(
    settings: &NodeSettings,
    facts: &NodeFacts,
    current: &NodeStatus,
    now: Timestamp,
) -> NodeStatus {
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
    let mut status = current.clone();
    if let Some(addresses) = addresses(settings, facts, current) {
        status.addresses = Some(addresses);
    }
    set_resources(&mut status.capacity, &settings.capacity);
    set_resources(&mut status.allocatable, &settings.allocatable);
    extended_resources::set(settings, facts, &mut status);
    let mut info = settings.info.clone();
    let version = facts
        .runtime
        .as_ref()
        .map(|runtime| runtime.version.clone());
    let before = current.node_info.as_ref();
    let before = before.map(|info| info.container_runtime_version.clone());
    info.container_runtime_version = version.or(before).unwrap_or_default();
    status.node_info = Some(info);
    status.daemon_endpoints = Some(NodeDaemonEndpoints {
        kubelet_endpoint: Some(DaemonEndpoint {
            port: settings.port.into(),
        }),
    });
    if facts.images_synced {
        let images = images(facts.images.values(), settings.max_images);
        status.images = (!images.is_empty()).then_some(images);
    }
    if let Some(runtime) = &facts.runtime {
        let handlers = runtime.handlers.clone();
        status.runtime_handlers = (!handlers.is_empty()).then_some(handlers);
        status.features = Some(NodeFeatures {
            supplemental_groups_policy: Some(runtime.supplemental_groups_policy),
        });
    }
    if !settings.features.is_empty() {
        status.declared_features = Some(settings.features.clone());
    }
    let current = current.conditions.as_deref().unwrap_or_default();
    status.conditions = Some(conditions(facts, current, now));
    if let Some(volumes) = facts.volumes_in_use.clone() {
        status.volumes_in_use = (!volumes.is_empty()).then_some(volumes);
    }
    status
}

/// Sets the node's own resources; those of others, such as devices, stay.
fn set_resources(list: &mut Option<BTreeMap<String, Quantity>>, own: &ResourceList) {
    let mut all: BTreeMap<String, Quantity> = list
        .take()
        .into_iter()
        .flatten()
        // Page sizes may have gone.
        .filter(|(name, _)| !name.starts_with("hugepages-"))
        .collect();
    let amounts = own.iter().map(|(name, number)| {
        let amount = if name == "cpu" {
            Amount::from_millis(*number)
        } else {
            Amount::from_units(*number)
        };
        (name.clone(), amount)
    });
    all.extend(quantity::format_list(&amounts.collect()));
    *list = Some(all);
}

/// The addresses; `None` while they are unknown, so that the current ones stay.
fn addresses(
    settings: &NodeSettings,
    facts: &NodeFacts,
    current: &NodeStatus,
) -> Option<Vec<NodeAddress>> {
    let present = current.addresses.as_deref().unwrap_or_default();
    // The cloud controller has set them already.
    if settings.external_cloud && !present.is_empty() {
        return None;
    }
    let address = |type_: &str, address: String| NodeAddress {
        type_: type_.to_owned(),
        address,
    };
    let name = address("Hostname", settings.name.clone());
    if settings.external_cloud && !settings.addresses_configured {
        return Some(vec![name]);
    }
    let detected = facts
        .addresses
        .as_ref()
        .filter(|detected| !detected.is_empty())?;
    let ips = detected.iter().map(|ip| address("InternalIP", ip.clone()));
    Some(ips.chain([name]).collect())
}

/// The largest images first; digests before tags.
fn images<'a>(images: impl Iterator<Item = &'a NodeImage>, max: i32) -> Vec<ContainerImage> {
    let mut all: Vec<&NodeImage> = images.collect();
    all.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.names.cmp(&b.names)));
    let max = usize::try_from(max).unwrap_or(usize::MAX);
    let container_image = |image: &NodeImage| {
        let (digests, tags): (Vec<String>, Vec<String>) = image
            .names
            .iter()
            .cloned()
            .partition(|name| name.contains('@'));
        let names = digests.into_iter().chain(tags).take(MAX_NAMES);
        ContainerImage {
            names: Some(names.collect()),
            size_bytes: i64::try_from(image.bytes).ok(),
        }
    };
    all.into_iter().take(max).map(container_image).collect()
}
