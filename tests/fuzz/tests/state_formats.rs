//! Every version of a state file's format that a service says it reads has a file as a release has written it,
//! and the service reads that. The files are in `testdata/formats` of the crate, and stay when the format
//! changes.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use polylet_kit::ServiceDescriptor;
use polylet_kit::state_file::StateFile;

const DESCRIPTORS: [&ServiceDescriptor; 11] = [
    &polylet_pod_config::DESCRIPTOR,
    &polylet_device_manager::DESCRIPTOR,
    &polylet_pleg::DESCRIPTOR,
    &polylet_prober::DESCRIPTOR,
    &polylet_volume_manager::DESCRIPTOR,
    &polylet_image_gc::DESCRIPTOR,
    &polylet_eviction::DESCRIPTOR,
    &polylet_sync_coordinator::DESCRIPTOR,
    &polylet_status_reporter::DESCRIPTOR,
    &polylet_node_api::DESCRIPTOR,
    &polylet_supervisor::DESCRIPTOR,
];

/// A state file in a service's directories.
struct Format {
    /// As the service declares it.
    declared: &'static str,
    /// The directory of the crate.
    owner: &'static str,
    /// Beginning of the files' names in `testdata/formats`.
    name: &'static str,
    /// Where the loader expects it.
    path: &'static str,
    /// Whether the file was read; `true` for loaders that set aside what they cannot read.
    load: fn(&Path) -> bool,
}

const fn format(
    declared: &'static str,
    owner: &'static str,
    name: &'static str,
    path: &'static str,
    load: fn(&Path) -> bool,
) -> Format {
    Format {
        declared,
        owner,
        name,
        path,
        load,
    }
}

const FORMATS: [Format; 22] = [
    format(
        "state:checkpoints/",
        "sync-coordinator",
        "checkpoints",
        "state/checkpoints/u1.json",
        coordinator,
    ),
    format(
        "run:sandbox_attempts/",
        "sync-coordinator",
        "sandbox_attempts",
        "run/sandbox_attempts/u1.json",
        coordinator,
    ),
    format(
        "run:lifecycles/",
        "sync-coordinator",
        "lifecycles",
        "run/lifecycles/u1.json",
        coordinator,
    ),
    format(
        "run:evictions.json",
        "eviction",
        "evictions",
        "evictions.json",
        eviction,
    ),
    format("run:oom.json", "eviction", "oom", "oom.json", eviction),
    format(
        "run:pressure.json",
        "eviction",
        "pressure",
        "pressure.json",
        eviction,
    ),
    format(
        "root:pods/<uid>/plugins/polylet.dev~volume/pod.json",
        "volume-manager",
        "pod",
        "pods/u1/plugins/polylet.dev~volume/pod.json",
        volume_manager,
    ),
    format(
        "state:file.json",
        "pod-config",
        "file",
        "file.json",
        pod_config,
    ),
    // The same type as that of files.
    format(
        "state:http.json",
        "pod-config",
        "file",
        "file.json",
        pod_config,
    ),
    format(
        "state:api.json",
        "pod-config",
        "api",
        "api.json",
        pod_config,
    ),
    format(
        "state:objects.json",
        "pod-config",
        "objects",
        "objects.json",
        pod_config,
    ),
    format(
        "state:cluster.json",
        "pod-config",
        "cluster",
        "cluster.json",
        pod_config,
    ),
    format(
        "state:node.json",
        "pod-config",
        "node",
        "node.json",
        pod_config,
    ),
    format(
        "state:services.json",
        "pod-config",
        "services",
        "services.json",
        pod_config,
    ),
    format(
        "state:tokens.json",
        "pod-config",
        "tokens",
        "tokens.json",
        pod_config,
    ),
    format(
        "run:notices.json",
        "status-reporter",
        "notices",
        "notices.json",
        status_reporter,
    ),
    format(
        "run:statuses.json",
        "status-reporter",
        "statuses",
        "statuses.json",
        status_reporter,
    ),
    format(
        "run:probe-results.json",
        "prober",
        "probe-results",
        "probe-results.json",
        prober,
    ),
    format(
        "run:plugins.json",
        "device-manager",
        "plugins",
        "plugins.json",
        device_manager,
    ),
    format(
        "run:listed-plugins.json",
        "device-manager",
        "listed-plugins",
        "listed-plugins.json",
        device_manager,
    ),
    format("state:ages.json", "image-gc", "ages", "ages.json", image_gc),
    format(
        "state:upgrades.json",
        "supervisor",
        "upgrades",
        "upgrades.json",
        supervisor,
    ),
];

/// Of several services, through the kit.
const STARTED: Format = format(
    "run:started.json",
    "shared/kit",
    "started",
    "started.json",
    started,
);

fn coordinator(dir: &Path) -> bool {
    drop(polylet_sync_coordinator::fuzzing::state_files(dir));
    true
}

fn eviction(dir: &Path) -> bool {
    polylet_eviction::fuzzing::state_files(dir).is_some()
}

fn volume_manager(dir: &Path) -> bool {
    let layout = polylet_volume_manager::core::layout::Layout::new(dir);
    let metadata = polylet_volume_manager::volume::metadata::load(&layout, &"u1".into());
    !metadata.pod.namespace.is_empty()
}

fn pod_config(dir: &Path) -> bool {
    polylet_pod_config::cluster::fuzzing::state_files(dir);
    true
}

fn status_reporter(dir: &Path) -> bool {
    drop(polylet_status_reporter::fuzzing::state_files(dir));
    true
}

fn prober(dir: &Path) -> bool {
    drop(polylet_prober::fuzzing::state_files(dir));
    true
}

fn device_manager(dir: &Path) -> bool {
    polylet_device_manager::fuzzing::state_files(dir)
}

fn image_gc(dir: &Path) -> bool {
    drop(polylet_image_gc::fuzzing::state_files(dir));
    true
}

fn supervisor(dir: &Path) -> bool {
    polylet_supervisor::fuzzing::state_files(dir).is_some_and(|records| records > 0)
}

fn started(dir: &Path) -> bool {
    let version = polylet_kit::boot_marker::VERSION;
    let file = StateFile::<String>::new(dir.join("started.json"), version);
    file.load().is_ok_and(|parent| parent.is_some())
}

fn testdata(format: &Format, version: u32) -> PathBuf {
    let services = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../services");
    let name = format!("{}.v{version}.json", format.name);
    services
        .join(format.owner)
        .join("testdata/formats")
        .join(name)
}

/// Whether the loader reads this content.
fn reads(format: &Format, content: &str) -> bool {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(format.path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, content).unwrap();
    let loaded = (format.load)(dir.path());
    let kept = fs::read_to_string(&path);
    // A log is written anew; what it could not read is not in it any more.
    loaded && kept.is_ok_and(|kept| !kept.is_empty()) && !has_broken(path.parent().unwrap())
}

fn has_broken(dir: &Path) -> bool {
    let entries = fs::read_dir(dir).unwrap().flatten();
    entries.into_iter().any(|entry| {
        let name = entry.file_name();
        name.to_string_lossy().ends_with(".broken")
    })
}

/// The same content with data of a type that no file has.
fn with_other_data(content: &str) -> String {
    let line = content.trim_start();
    let first = serde_json::Deserializer::from_str(line).into_iter::<serde_json::Value>();
    let mut value = first.flatten().next().unwrap();
    for field in ["data", "key"] {
        if let Some(data) = value.get_mut(field) {
            *data = serde_json::json!([[[false]]]);
        }
    }
    format!("{value}\n")
}

#[test]
fn every_declared_format_has_a_file_of_each_version() {
    let mut declared = BTreeSet::new();
    for descriptor in DESCRIPTORS {
        for file in descriptor.state_files {
            let Some(versions) = &file.format else {
                continue;
            };
            let all = FORMATS.iter().chain([&STARTED]);
            let mut of_file = all.filter(|format| {
                let is_shared = format.declared == STARTED.declared;
                format.declared == file.path && (is_shared || format.owner == descriptor.service)
            });
            let format = of_file.next();
            let format = format.unwrap_or_else(|| {
                panic!("{} of {} has no loader here", file.path, descriptor.service)
            });
            declared.insert(format.declared);
            for version in versions.oldest_read..=versions.written {
                let path = testdata(format, version);
                assert!(path.is_file(), "{} is missing", path.display());
            }
        }
    }
    for format in FORMATS {
        assert!(
            declared.contains(format.declared),
            "{} is not declared",
            format.declared
        );
    }
}

#[test]
fn files_of_releases_are_read() {
    for descriptor in DESCRIPTORS {
        for file in descriptor.state_files {
            let Some(versions) = &file.format else {
                continue;
            };
            for format in FORMATS.iter().chain([&STARTED]) {
                let is_shared = format.declared == STARTED.declared;
                if format.declared != file.path
                    || !(is_shared || format.owner == descriptor.service)
                {
                    continue;
                }
                for version in versions.oldest_read..=versions.written {
                    let path = testdata(format, version);
                    let content = fs::read_to_string(&path).unwrap();
                    assert!(reads(format, &content), "{} is not read", path.display());
                    let other = with_other_data(&content);
                    assert!(
                        !reads(format, &other),
                        "{}: {other} is read",
                        path.display()
                    );
                }
            }
        }
    }
}
