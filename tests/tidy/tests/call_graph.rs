//! The call graph of the services: declared in descriptors, acyclic by rank, and equal to the clients
//! that the code uses.

use std::collections::BTreeSet;
use std::fs;

use polylet_packaging::DESCRIPTORS;
use polylet_tidy::baseline::WireBaseline;
use polylet_tidy::{RANKS, code_lines, files, root, wire};

/// The package of notices, which all services serve.
const NOTICES: &str = "polylet.notice.v1";
/// The package of what services count, and of their info, which is no call.
const LIFECYCLE: &str = "polylet.lifecycle.v1";

fn rank(service: &str) -> u32 {
    let known = RANKS.iter().find(|(name, _)| *name == service);
    known.unwrap_or_else(|| panic!("{service} has no rank")).1
}

#[test]
fn every_service_has_a_descriptor_and_a_rank() {
    let declared: BTreeSet<&str> = DESCRIPTORS.iter().map(|m| m.service).collect();
    let ranked: BTreeSet<&str> = RANKS.iter().map(|(name, _)| *name).collect();
    assert_eq!(declared, ranked);
}

#[test]
fn calls_go_down_in_rank() {
    for manifest in DESCRIPTORS {
        for call in manifest.calls {
            assert!(
                rank(call.service) < rank(manifest.service),
                "{} (rank {}) calls {} (rank {})",
                manifest.service,
                rank(manifest.service),
                call.service,
                rank(call.service)
            );
        }
    }
}

#[test]
fn called_packages_are_served_at_the_declared_level() {
    for manifest in DESCRIPTORS {
        // All services serve notices and their life cycle, through the kit.
        let of_kit = [NOTICES, LIFECYCLE];
        let own = manifest.calls.iter();
        let own = own.filter(|c| !of_kit.contains(&c.package));
        for call in own {
            let callee = DESCRIPTORS.iter().find(|m| m.service == call.service);
            let served = callee
                .and_then(|m| m.serves.iter().find(|api| api.package == call.package))
                .unwrap_or_else(|| {
                    panic!(
                        "{}: {} does not serve {}",
                        manifest.service, call.service, call.package
                    )
                });
            assert!(
                served.level >= call.level,
                "{}: {} is served at a lower level",
                manifest.service,
                call.package
            );
        }
    }
}

/// A caller needs of each peer all that it was compiled with: no number is kept by hand. Counts are an
/// addition that it can do without.
#[test]
fn needed_levels_are_those_of_the_wire() {
    let wire = wire::descriptors(&root()).expect("the wire");
    let baseline = WireBaseline::committed(&root()).expect("the baseline");
    let levels = baseline.levels(&wire);
    for manifest in DESCRIPTORS {
        let calls = manifest.calls.iter();
        for call in calls.filter(|call| call.package != LIFECYCLE) {
            let reached = levels.get(call.package).copied();
            let (service, callee) = (manifest.service, call.service);
            assert_eq!(
                Some(call.level),
                reached,
                "{service}: {} of {callee}",
                call.package
            );
        }
    }
}

/// Every service announces the level that its wire has reached.
#[test]
fn served_levels_are_those_of_the_wire() {
    let wire = wire::descriptors(&root()).expect("the wire");
    let baseline = WireBaseline::committed(&root()).expect("the baseline");
    let levels = baseline.levels(&wire);
    for manifest in DESCRIPTORS {
        for api in manifest.serves {
            let reached = levels.get(api.package).copied();
            let service = manifest.service;
            assert_eq!(Some(api.level), reached, "{service}: {}", api.package);
        }
    }
}

#[test]
fn served_packages_exist() {
    let packages: BTreeSet<String> = wire::descriptors(&root())
        .expect("the wire")
        .file
        .iter()
        .map(|file| file.package().to_owned())
        .collect();
    for manifest in DESCRIPTORS {
        for api in manifest.serves {
            assert!(
                packages.contains(api.package),
                "{}: no package {}",
                manifest.service,
                api.package
            );
        }
    }
}

/// Clients that a service's code uses: generated modules `<snake>_service_client` below
/// `polylet_wire::<area>`, and streams through `follow::<area>`. Info and health, which all services
/// serve, and the command line's calls to its own supervisor do not count.
fn clients_used(service: &str) -> BTreeSet<String> {
    let no_edges = ["lifecycle", service];
    let mut areas = BTreeSet::new();
    for file in files(&root().join("services").join(service).join("src"), "rs") {
        for (_, line) in code_lines(&file) {
            let followed = line
                .split("follow::")
                .nth(1)
                .and_then(|rest| rest.split_once("::"));
            areas.extend(followed.map(|(area, _)| area.to_owned()));
            let Some(at) = line.find("_service_client") else {
                continue;
            };
            let path = &line[..at];
            let Some(below) = path.split("polylet_wire::").nth(1) else {
                continue;
            };
            let area = below.split("::").next().unwrap_or("");
            if !no_edges.contains(&area) {
                areas.insert(area.to_owned());
            }
        }
    }
    areas
}

#[test]
fn used_clients_match_declared_calls() {
    for manifest in DESCRIPTORS {
        let declared: BTreeSet<String> = manifest
            .calls
            .iter()
            .filter(|call| call.package != LIFECYCLE)
            .filter_map(|call| call.package.split('.').nth(1))
            .map(str::to_owned)
            .collect();
        let used = clients_used(manifest.service);
        assert_eq!(
            used, declared,
            "{}: clients used (left), calls declared (right)",
            manifest.service
        );
    }
}

#[test]
fn services_do_not_depend_on_each_others_crates() {
    for (service, _) in RANKS {
        let path = root().join("services").join(service).join("Cargo.toml");
        let manifest = fs::read_to_string(&path).expect("a crate manifest");
        for (other, _) in RANKS.iter().filter(|(other, _)| other != service) {
            let name = format!("polylet-{other}");
            let depends = manifest.lines().any(|line| {
                let key = line.split(['.', '=', ' ']).next().unwrap_or("");
                key == name
            });
            assert!(!depends, "{service} depends on {name}");
        }
    }
}
