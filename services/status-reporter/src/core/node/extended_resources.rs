//! Extended resources in the node's status: those of device plugins, and those that administrators add
//! to the capacity by hand.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::NodeStatus;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use polylet_model::extended_resource::is_extended;
use polylet_model::quantity::Amount;

use super::facts::{NodeFacts, NodeSettings};

/// Sets the extended resources of a status whose other resources are up to date.
///
/// - A resource of a device plugin has its devices, and the healthy ones are allocatable. It is never
///   removed: without devices it is zero.
/// - Of any other resource in the capacity, all is allocatable, until it is removed from the capacity.
/// - While the resources of device plugins are unknown, what is allocatable of extended resources stays.
/// - On a machine other than the one that wrote the status, nothing is left of the other's resources.
pub(super) fn set(settings: &NodeSettings, facts: &NodeFacts, status: &mut NodeStatus) {
    let is_recreated = is_recreated(settings, status);
    let capacity = status.capacity.get_or_insert_default();
    let allocatable = status.allocatable.get_or_insert_default();
    if is_recreated {
        for (name, amount) in capacity.iter_mut().filter(|(name, _)| is_extended(name)) {
            *amount = quantity(0);
            allocatable.insert(name.clone(), quantity(0));
        }
    }
    if facts.devices_synced {
        let devices = facts.devices.iter();
        capacity.extend(devices.map(|(name, devices)| (name.clone(), quantity(devices.capacity))));
    }
    set_allocatable(settings, facts, capacity, allocatable);
}

fn set_allocatable(
    settings: &NodeSettings,
    facts: &NodeFacts,
    capacity: &BTreeMap<String, Quantity>,
    allocatable: &mut BTreeMap<String, Quantity>,
) {
    allocatable.retain(|name, _| capacity.contains_key(name) || !is_extended(name));
    let others = capacity.iter();
    for (name, amount) in others.filter(|(name, _)| !settings.capacity.contains_key(*name)) {
        let devices = facts.devices.get(name).filter(|_| facts.devices_synced);
        let stays = !facts.devices_synced && is_extended(name) && allocatable.contains_key(name);
        if !stays {
            let amount = devices.map_or_else(|| amount.clone(), |it| quantity(it.allocatable));
            allocatable.insert(name.clone(), amount);
        }
    }
}

/// Whether another machine of this name has written the status. Upstream concludes this from the absence of
/// its device checkpoint; that file is another service's here, which may have created it by now.
fn is_recreated(settings: &NodeSettings, status: &NodeStatus) -> bool {
    let written = status.node_info.as_ref();
    let written = written.map_or("", |info| &info.machine_id);
    let own = settings.info.machine_id.as_str();
    !written.is_empty() && !own.is_empty() && written != own
}

fn quantity(units: i64) -> Quantity {
    Quantity(Amount::from_units(units).to_decimal())
}
