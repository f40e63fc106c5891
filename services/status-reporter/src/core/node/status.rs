//! The node's status from all facts.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    ContainerImage, DaemonEndpoint, NodeAddress, NodeDaemonEndpoints, NodeFeatures, NodeStatus,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use polylet_model::node::Numbers;
use polylet_model::quantity::{self, Amount};

use super::conditions::conditions;
use super::facts::{Facts, Image, Settings};

/// An image has at most so many names in a status.
const NAMES: usize = 5;

/// The status that should be held, made over the one that is: what others wrote stays.
pub(crate) fn status(
    settings: &Settings,
    facts: &Facts,
    held: &NodeStatus,
    now: Timestamp,
) -> NodeStatus {
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
    let mut status = held.clone();
    if let Some(addresses) = addresses(settings, facts, held) {
        status.addresses = Some(addresses);
    }
    resources(&mut status.capacity, &settings.capacity);
    resources(&mut status.allocatable, &settings.allocatable);
    others(&mut status.allocatable, status.capacity.as_ref(), settings);
    let mut info = settings.info.clone();
    let version = facts
        .runtime
        .as_ref()
        .map(|runtime| runtime.version.clone());
    let before = held.node_info.as_ref();
    let before = before.map(|info| info.container_runtime_version.clone());
    info.container_runtime_version = version.or(before).unwrap_or_default();
    status.node_info = Some(info);
    status.daemon_endpoints = Some(NodeDaemonEndpoints {
        kubelet_endpoint: Some(DaemonEndpoint {
            port: settings.port.into(),
        }),
    });
    if facts.images_heard {
        let images = images(facts.images.values(), settings.most_images);
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
    let held = held.conditions.as_deref().unwrap_or_default();
    status.conditions = Some(conditions(facts, held, now));
    if let Some(volumes) = facts.volumes_in_use.clone() {
        status.volumes_in_use = (!volumes.is_empty()).then_some(volumes);
    }
    status
}

/// The node's own numbers; resources that others added (devices) stay.
fn resources(list: &mut Option<BTreeMap<String, Quantity>>, own: &Numbers) {
    let mut all: BTreeMap<String, Quantity> = list
        .take()
        .into_iter()
        .flatten()
        // Page sizes that the kernel no longer has.
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
    all.extend(quantity::write(&amounts.collect()));
    *list = Some(all);
}

/// Resources that somebody else has given the node's capacity, as administrators do by hand, may be
/// asked for whole; what was taken from the capacity again may not.
fn others(
    allocatable: &mut Option<BTreeMap<String, Quantity>>,
    capacity: Option<&BTreeMap<String, Quantity>>,
    settings: &Settings,
) {
    let all = allocatable.get_or_insert_default();
    let has = |name: &String| capacity.is_some_and(|capacity| capacity.contains_key(name));
    all.retain(|name, _| has(name) || !is_extended(name));
    let others = capacity.into_iter().flatten();
    let others = others.filter(|(name, _)| !settings.capacity.contains_key(*name));
    all.extend(others.map(|(name, amount)| (name.clone(), amount.clone())));
}

/// A resource that is none of Kubernetes' own, which have no domain or `kubernetes.io`.
fn is_extended(name: &str) -> bool {
    name.contains('/') && !name.contains("kubernetes.io/")
}

/// `None` while nothing is known of them: what is held stays.
fn addresses(settings: &Settings, facts: &Facts, held: &NodeStatus) -> Option<Vec<NodeAddress>> {
    let present = held.addresses.as_deref().unwrap_or_default();
    // Whoever manages the cloud has said them already.
    if settings.external_cloud && !present.is_empty() {
        return None;
    }
    let address = |type_: &str, address: String| NodeAddress {
        type_: type_.to_owned(),
        address,
    };
    let name = address("Hostname", settings.name.clone());
    if settings.external_cloud && !settings.addresses_given {
        return Some(vec![name]);
    }
    let found = facts.addresses.as_ref().filter(|found| !found.is_empty())?;
    let ips = found.iter().map(|ip| address("InternalIP", ip.clone()));
    Some(ips.chain([name]).collect())
}

/// The largest first; of each its digests before its tags.
fn images<'a>(images: impl Iterator<Item = &'a Image>, most: i32) -> Vec<ContainerImage> {
    let mut all: Vec<&Image> = images.collect();
    all.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.names.cmp(&b.names)));
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let one = |image: &Image| {
        let (digests, tags): (Vec<String>, Vec<String>) = image
            .names
            .iter()
            .cloned()
            .partition(|name| name.contains('@'));
        let names = digests.into_iter().chain(tags).take(NAMES);
        ContainerImage {
            names: Some(names.collect()),
            size_bytes: i64::try_from(image.bytes).ok(),
        }
    };
    all.into_iter().take(most).map(one).collect()
}
