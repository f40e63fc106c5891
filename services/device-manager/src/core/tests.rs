//! Tables of the decisions.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::allocation::{self, AllocationError};
use super::allocations::{AllocatedResource, AllocationKey, DeviceAllocations};
use super::inventory::{Device, DeviceCounts, DeviceInventory, PluginOptions, STOP_GRACE_PERIOD};
use super::pod_allocation::{AllocationStep, PodDeviceAllocation, RequestingContainer};
use super::run_options::ContainerRunOptions;

mod plugin_records;
mod registrations;
mod run_options;

const GPU: &str = "example.com/gpu";

fn set(ids: &[&str]) -> BTreeSet<String> {
    ids.iter().map(|id| (*id).to_owned()).collect()
}

fn devices(healthy: &[&str], unhealthy: &[&str]) -> BTreeMap<String, Device> {
    let device = |id: &&str, healthy| {
        let numa_nodes = Vec::new();
        (
            (*id).to_owned(),
            Device {
                healthy,
                numa_nodes,
            },
        )
    };
    let healthy = healthy.iter().map(|id| device(id, true));
    let unhealthy = unhealthy.iter().map(|id| device(id, false));
    healthy.chain(unhealthy).collect()
}

fn inventory(healthy: &[&str], unhealthy: &[&str]) -> DeviceInventory {
    let mut inventory = DeviceInventory::default();
    inventory.connect(GPU, PluginOptions::default());
    inventory.list(GPU, devices(healthy, unhealthy));
    inventory
}

fn counts(inventory: &DeviceInventory) -> Option<(usize, usize)> {
    let mut counts = inventory.counts().filter(|(name, _)| *name == GPU);
    let (
        _,
        DeviceCounts {
            capacity,
            allocatable,
        },
    ) = counts.next()?;
    Some((capacity, allocatable))
}

fn container(name: &str, count: u64) -> RequestingContainer {
    RequestingContainer {
        name: name.to_owned(),
        limits: [(GPU.to_owned(), count)].into(),
        ..RequestingContainer::default()
    }
}

fn key(pod_uid: &str, container: &str) -> AllocationKey {
    AllocationKey {
        pod_uid: pod_uid.to_owned(),
        container: container.to_owned(),
        resource: GPU.to_owned(),
    }
}

fn give(allocations: &mut DeviceAllocations, pod: &str, container: &str, ids: &[&str]) {
    let allocated = AllocatedResource {
        devices: [(-1, ids.iter().map(|id| (*id).to_owned()).collect())].into(),
        run_options: ContainerRunOptions::default(),
    };
    allocations.insert(key(pod, container), allocated);
}

/// Runs an allocation as if plugins prepared everything and preferred the last devices.
fn allocate(
    pod: &str,
    containers: Vec<RequestingContainer>,
    inventory: &DeviceInventory,
    allocations: &mut DeviceAllocations,
) -> Result<Vec<String>, AllocationError> {
    let mut allocation = PodDeviceAllocation::new(pod, containers);
    let mut steps = Vec::new();
    loop {
        match allocation.advance(inventory, allocations)? {
            AllocationStep::Done => return Ok(steps),
            AllocationStep::Prefer(key, request) => {
                let ids: Vec<String> = request.available.iter().rev().cloned().collect();
                let (all, required) = (ids.join(","), request.required.len());
                steps.push(format!(
                    "{}? {all} {required}+{}",
                    key.container, request.count
                ));
                allocation.on_preferred(ids);
            }
            AllocationStep::Allocate(key, ids) => {
                let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
                steps.push(format!("{}: {}", key.container, ids.join(",")));
                give(allocations, pod, &key.container, &ids);
                allocation.on_allocated();
            }
        }
    }
}

#[test]
fn a_plugin_that_stops_keeps_its_capacity_for_five_minutes() {
    let start = Timestamp::UNIX_EPOCH;
    let mut inventory = DeviceInventory::default();
    inventory.connect(GPU, PluginOptions::default());
    assert_eq!(counts(&inventory), None, "nothing is listed yet");
    inventory.list(GPU, devices(&["a", "b"], &["c"]));
    assert_eq!(counts(&inventory), Some((3, 2)));
    inventory.disconnect(GPU, start);
    assert_eq!(counts(&inventory), Some((3, 0)));
    assert_eq!(inventory.next_expiry(), Some(start + STOP_GRACE_PERIOD));
    assert!(!inventory.expire(start + STOP_GRACE_PERIOD - SignedDuration::from_secs(1)));
    assert!(inventory.is_registered(GPU));
    assert!(inventory.expire(start + STOP_GRACE_PERIOD));
    assert_eq!(counts(&inventory), Some((0, 0)), "it is not removed");
    assert!(!inventory.is_registered(GPU));
    assert_eq!(inventory.next_expiry(), None);
    // It comes back.
    inventory.connect(GPU, PluginOptions::default());
    inventory.list(GPU, devices(&["a"], &[]));
    assert_eq!(counts(&inventory), Some((1, 1)));
}

#[test]
fn a_plugin_that_lists_nothing_has_no_capacity() {
    let mut inventory = DeviceInventory::default();
    inventory.connect(GPU, PluginOptions::default());
    inventory.disconnect(GPU, Timestamp::UNIX_EPOCH);
    assert_eq!(counts(&inventory), Some((0, 0)));
    assert!(!inventory.is_registered(GPU));
}

#[test]
fn devices_are_healthy_again_when_a_plugin_lists_them() {
    let mut inventory = inventory(&["a"], &[]);
    inventory.disconnect(GPU, Timestamp::UNIX_EPOCH);
    inventory.connect(GPU, PluginOptions::default());
    assert_eq!(counts(&inventory), Some((1, 0)));
    inventory.list(GPU, devices(&["a"], &[]));
    assert_eq!(counts(&inventory), Some((1, 1)));
    // One that registers again without having stopped keeps its devices until it lists them.
    inventory.connect(GPU, PluginOptions::default());
    assert_eq!(counts(&inventory), Some((1, 1)));
}

#[test]
fn restored_resources_have_no_devices_before_their_plugin_registers() {
    let mut inventory = DeviceInventory::default();
    inventory.restore(GPU, false, Timestamp::UNIX_EPOCH);
    assert_eq!(counts(&inventory), Some((0, 0)));
    assert!(inventory.is_registered(GPU));
    assert!(!inventory.is_listed_since_boot(GPU));
    let result = allocate(
        "p",
        vec![container("c", 1)],
        &inventory,
        &mut DeviceAllocations::default(),
    );
    assert_eq!(result, Err(AllocationError::NoneHealthy(GPU.to_owned())));
}

#[test]
fn containers_get_devices_that_no_other_has() {
    let inventory = inventory(&["a", "b", "c"], &["x"]);
    let mut allocations = DeviceAllocations::default();
    let steps = allocate(
        "p",
        vec![container("1", 1), container("2", 1)],
        &inventory,
        &mut allocations,
    );
    assert_eq!(steps.unwrap(), ["1: a", "2: b"]);
    assert_eq!(allocations.counts(), [(GPU.to_owned(), 2)].into());
    let error = allocate("q", vec![container("1", 2)], &inventory, &mut allocations).unwrap_err();
    assert_eq!(
        error.to_string(),
        "requested number of devices unavailable for example.com/gpu. Requested: 2, Available: 1"
    );
    // The pod has ended.
    assert_eq!(
        allocations.retain_pods(&["q"].into(), Duration::ZERO),
        ["p"]
    );
    let steps = allocate("q", vec![container("1", 2)], &inventory, &mut allocations);
    assert_eq!(steps.unwrap(), ["1: a,b"]);
}

#[test]
fn a_request_that_was_overtaken_takes_nothing_from_a_younger_pod() {
    let mut allocations = DeviceAllocations::default();
    let at = Duration::from_secs;
    // The request for `older` was made at 1, before there was `younger`, and arrives after that one's.
    allocations.on_request("younger", at(2));
    give(&mut allocations, "younger", "c", &["a"]);
    allocations.on_request("older", at(3));
    assert!(allocations.retain_pods(&["older"].into(), at(1)).is_empty());
    // Later ones know that it has ended.
    assert_eq!(
        allocations.retain_pods(&["older"].into(), at(4)),
        ["younger"]
    );
}

#[test]
fn devices_of_ended_init_containers_are_used_again() {
    let releasing = |name| RequestingContainer {
        releases_devices: true,
        ..container(name, 1)
    };
    let inventory = inventory(&["a", "b", "c"], &[]);
    let mut allocations = DeviceAllocations::default();
    // A sidecar keeps its device, which was the first init container's.
    let containers = vec![
        releasing("init"),
        container("sidecar", 1),
        releasing("init2"),
        container("main", 2),
    ];
    let steps = allocate("p", containers, &inventory, &mut allocations);
    assert_eq!(
        steps.unwrap(),
        ["init: a", "sidecar: a", "init2: b", "main: b,c"]
    );
}

#[test]
fn a_repeated_allocation_changes_nothing() {
    let mut allocations = DeviceAllocations::default();
    give(&mut allocations, "p", "c", &["a"]);
    let again = |healthy: &[&str], count, running| {
        let request = RequestingContainer {
            running,
            ..container("c", count)
        };
        let inventory = inventory(healthy, &["x"]);
        allocate("p", vec![request], &inventory, &mut allocations.clone())
    };
    assert_eq!(again(&["a", "b"], 1, false), Ok(Vec::new()));
    let unhealthy = AllocationError::AllocatedUnhealthy(GPU.to_owned());
    assert_eq!(again(&["b"], 1, false), Err(unhealthy));
    assert_eq!(
        again(&[], 1, false),
        Err(AllocationError::NoneHealthy(GPU.to_owned()))
    );
    assert_eq!(again(&[], 1, true), Ok(Vec::new()), "it has its device");
    assert_eq!(
        again(&["a", "b"], 2, false).unwrap_err().to_string(),
        "pod \"p\" container \"c\" changed request for resource \"example.com/gpu\" from 1 to 2"
    );
}

#[test]
fn other_extended_resources_are_ignored() {
    let inventory = DeviceInventory::default();
    let mut allocations = DeviceAllocations::default();
    let steps = allocate("p", vec![container("c", 1)], &inventory, &mut allocations);
    assert_eq!(steps, Ok(Vec::new()));
    // Unless a container has some of it, whose plugin is gone.
    give(&mut allocations, "q", "c", &["a"]);
    let error = allocate("p", vec![container("c", 1)], &inventory, &mut allocations);
    assert_eq!(error, Err(AllocationError::Unregistered(GPU.to_owned())));
}

#[test]
fn plugins_choose_among_what_is_available() {
    let options = PluginOptions {
        preferred_allocation: true,
        ..PluginOptions::default()
    };
    let mut inventory = DeviceInventory::default();
    inventory.connect(GPU, options);
    inventory.list(GPU, devices(&["a", "b", "c", "d"], &["x"]));
    let mut allocations = DeviceAllocations::default();
    give(&mut allocations, "q", "c", &["d"]);
    let init = RequestingContainer {
        releases_devices: true,
        ..container("init", 1)
    };
    let steps = allocate(
        "p",
        vec![init, container("main", 2)],
        &inventory,
        &mut allocations,
    );
    // The init container's device is one of the main container's, and required of the plugin's choice.
    assert_eq!(
        steps.unwrap(),
        ["init? c,b,a 0+1", "init: c", "main? c,b,a 1+2", "main: b,c"]
    );
}

#[test]
fn a_choice_of_devices_that_are_not_available_is_not_followed() {
    let options = PluginOptions {
        preferred_allocation: true,
        ..PluginOptions::default()
    };
    let mut inventory = DeviceInventory::default();
    inventory.connect(GPU, options);
    inventory.list(GPU, devices(&["a", "b"], &["x"]));
    let mut allocations = DeviceAllocations::default();
    let mut allocation = PodDeviceAllocation::new("p", vec![container("c", 1)]);
    let step = allocation.advance(&inventory, &mut allocations);
    assert!(matches!(step, Ok(AllocationStep::Prefer(..))), "{step:?}");
    // Another pod gets a device while the plugin is asked.
    allocations.reserve(key("q", "c"), set(&["b"]));
    allocation.on_preferred(["x", "b", "nonsense"].map(str::to_owned).into());
    let step = allocation.advance(&inventory, &mut allocations);
    assert_eq!(
        step,
        Ok(AllocationStep::Allocate(key("p", "c"), set(&["a"])))
    );
    assert_eq!(allocations.in_use(GPU), set(&["a", "b"]));
    allocations.release(&key("p", "c"));
    assert_eq!(allocations.in_use(GPU), set(&["b"]));
}

#[test]
fn a_container_does_not_start_before_its_plugin_has_since_boot() {
    let mut allocations = DeviceAllocations::default();
    give(&mut allocations, "p", "c", &["a"]);
    let check = |inventory: &DeviceInventory| {
        allocation::check_start(inventory, allocations.container("p", "c"))
    };
    let mut restored = DeviceInventory::default();
    restored.restore(GPU, false, Timestamp::UNIX_EPOCH);
    assert_eq!(
        check(&restored),
        Err(AllocationError::NoneHealthy(GPU.to_owned()))
    );
    restored.connect(GPU, PluginOptions::default());
    restored.list(GPU, devices(&[], &["a"]));
    assert_eq!(
        check(&restored),
        Ok(()),
        "as upstream, whatever its health is now"
    );
    let mut same_boot = DeviceInventory::default();
    same_boot.restore(GPU, true, Timestamp::UNIX_EPOCH);
    assert_eq!(check(&same_boot), Ok(()));
    assert_eq!(allocation::check_start(&same_boot, None), Ok(()));
}

#[test]
fn devices_are_stored_with_each_of_their_numa_nodes() {
    let mut listed = devices(&["a", "b"], &[]);
    listed.get_mut("a").unwrap().numa_nodes = vec![0, 1];
    let mut inventory = DeviceInventory::default();
    inventory.connect(GPU, PluginOptions::default());
    inventory.list(GPU, listed);
    let stored = allocation::by_numa_node(&inventory, GPU, &set(&["a", "b"]));
    let ids = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
    assert_eq!(
        stored,
        [(-1, ids(&["b"])), (0, ids(&["a"])), (1, ids(&["a"]))].into()
    );
    let allocated = AllocatedResource {
        devices: stored,
        run_options: ContainerRunOptions::default(),
    };
    assert_eq!(allocated.ids(), set(&["a", "b"]));
}
