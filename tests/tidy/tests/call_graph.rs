//! Who calls whom: declared by the manifests, acyclic by rank, and what the code really does.

use std::collections::BTreeSet;
use std::fs;

use polylet_kit::Manifest;
use polylet_tidy::{RANKS, code_lines, files, root, wire};

const MANIFESTS: &[&Manifest] = &[
    &polylet_pleg::MANIFEST,
    &polylet_pod_config::MANIFEST,
    &polylet_prober::MANIFEST,
    &polylet_image_gc::MANIFEST,
    &polylet_volume_manager::MANIFEST,
    &polylet_eviction::MANIFEST,
    &polylet_sync_coordinator::MANIFEST,
    &polylet_status_reporter::MANIFEST,
    &polylet_node_api::MANIFEST,
    &polylet_supervisor::MANIFEST,
];

/// What all services have to say to people.
const NOTICES: &str = "polylet.notice.v1";

fn rank(service: &str) -> u32 {
    let known = RANKS.iter().find(|(name, _)| *name == service);
    known.unwrap_or_else(|| panic!("{service} has no rank")).1
}

#[test]
fn every_service_has_a_manifest_and_a_rank() {
    let declared: BTreeSet<&str> = MANIFESTS.iter().map(|m| m.service).collect();
    let ranked: BTreeSet<&str> = RANKS.iter().map(|(name, _)| *name).collect();
    assert_eq!(declared, ranked);
}

#[test]
fn calls_go_down_in_rank() {
    for manifest in MANIFESTS {
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
fn what_is_called_is_served_at_that_level() {
    for manifest in MANIFESTS {
        // Notices are every service's, served by the kit.
        let own = manifest.calls.iter().filter(|c| c.package != NOTICES);
        for call in own {
            let callee = MANIFESTS.iter().find(|m| m.service == call.service);
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

#[test]
fn served_packages_exist_on_the_wire() {
    let packages: BTreeSet<String> = wire::descriptors(&root())
        .expect("the wire")
        .file
        .iter()
        .map(|file| file.package().to_owned())
        .collect();
    for manifest in MANIFESTS {
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

/// Generated client modules are named `<snake>_service_client`, below `polylet_wire::<area>`. Info and
/// health are every service's, and the command line calls its own supervisor: both are no edges.
/// Streams are followed through `follow::<area>`.
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
fn clients_in_the_code_are_those_declared() {
    for manifest in MANIFESTS {
        let declared: BTreeSet<String> = manifest
            .calls
            .iter()
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
fn no_service_depends_on_another_services_crate() {
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
