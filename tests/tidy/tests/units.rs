//! `systemd/`: it is up to date, `systemd-analyze` accepts it, services have no more rights than they need,
//! and each socket opens for the services that are declared to call it, and for no other.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use polylet_packaging::facts::{self, Account, FACTS};
use polylet_packaging::{DESCRIPTORS, SUPERVISOR, files, stale};
use polylet_tidy::root;

/// The highest exposure (`systemd-analyze security`, 0 to 10) of a service that has a user of its own.
const MAX_EXPOSURE: f64 = 3.0;

/// That of the services that run as root, each with its reason.
const EXPOSED: &[(&str, f64, &str)] = &[
    (
        "device-manager",
        2.0,
        "serves device plugins of root and calls those of any user",
    ),
    (
        "eviction",
        3.0,
        "reads files of any user and the kernel's log",
    ),
    ("supervisor", 3.0, "reads the memory of all services"),
    ("sync-coordinator", 4.0, "makes cgroups and files of pods"),
    ("volume-manager", 6.5, "mounts in the host's namespace"),
    ("cni-cache", 2.0, "removes files of root"),
];

/// A unit that is all services at once, volume-manager among them.
const ALL_IN_ONE: &str = "polylet.service";

fn systemd() -> std::path::PathBuf {
    root().join("systemd")
}

#[test]
fn files_are_up_to_date() {
    let generated = files();
    for (name, text) in &generated {
        let committed = fs::read_to_string(systemd().join(name)).unwrap_or_default();
        assert!(
            *text == committed,
            "systemd/{name} is out of date: run `cargo generate units`"
        );
    }
    let stale = stale(&systemd(), &generated).expect("the directories");
    assert!(stale.is_empty(), "not generated any more: {stale:?}");
}

#[test]
fn every_service_has_facts() {
    let described: Vec<&str> = DESCRIPTORS.iter().map(|one| one.service).collect();
    let known: Vec<&str> = FACTS.iter().map(|one| one.service).collect();
    assert_eq!(described, known);
    for need in FACTS.iter().flat_map(|facts| facts.needs) {
        assert!(!need.reason.is_empty() && !need.directives.is_empty());
    }
}

/// The users that `sysusers.d` makes members of each group.
fn members() -> BTreeMap<String, BTreeSet<String>> {
    let text = fs::read_to_string(systemd().join("sysusers.d/polylet.conf")).expect("the users");
    let mut members: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in text.lines() {
        if let ["m", user, group] = line.split_whitespace().collect::<Vec<_>>().as_slice() {
            let group = members.entry((*group).to_owned()).or_default();
            group.insert((*user).to_owned());
        }
    }
    members
}

/// All pairs of services: a caller that is not root has access if and only if it is declared to call.
#[test]
fn sockets_open_for_declared_callers_alone() {
    let members = members();
    for callee in DESCRIPTORS {
        let name = format!("polylet-{}", callee.service);
        let unit = fs::read_to_string(systemd().join(format!("system/{name}.socket")));
        let unit = unit.expect("a socket unit");
        for line in [
            format!("ListenStream=/run/polylet/{}.sock", callee.service),
            format!("SocketGroup={name}"),
            "SocketMode=0660".to_owned(),
            "Accept=no".to_owned(),
        ] {
            assert!(
                unit.lines().any(|found| found == line),
                "{name}.socket: {line}"
            );
        }
        for caller in DESCRIPTORS {
            if facts::of(caller.service).account == Account::Root
                || caller.service == callee.service
            {
                continue;
            }
            let user = format!("polylet-{}", caller.service);
            let has_access = members
                .get(&name)
                .is_some_and(|users| users.contains(&user));
            let calls = caller
                .calls
                .iter()
                .any(|call| call.service == callee.service);
            let sends_spans = callee.service == SUPERVISOR;
            assert_eq!(has_access, calls || sends_spans, "{user} to {name}.socket");
        }
    }
}

/// Steps would: systemd counts all restarts since the last start by hand, so that in the end each kill of a service would
/// keep calls waiting for the longest delay.
#[test]
fn the_delay_of_restarts_does_not_grow() {
    for (name, text) in files() {
        for key in ["RestartSteps=", "RestartMaxDelaySec="] {
            let is_set = text.lines().any(|line| line.starts_with(key));
            assert!(!is_set, "{name}: {key}");
        }
    }
}

/// systemd makes all of the users and groups.
#[test]
fn users_and_groups_are_valid() {
    let dir = tempfile::tempdir().expect("a directory");
    fs::create_dir_all(dir.path().join("etc")).expect("a directory");
    let output = Command::new("systemd-sysusers")
        .arg(format!("--root={}", dir.path().display()))
        .arg(systemd().join("sysusers.d/polylet.conf"))
        .output();
    let Ok(output) = output else {
        println!("skipped: systemd-sysusers is not installed (package systemd)");
        return;
    };
    let log = String::from_utf8_lossy(&output.stderr);
    let read = |name: &str| fs::read_to_string(dir.path().join("etc").join(name));
    let users = read("passwd").unwrap_or_default();
    let groups = read("group").unwrap_or_default();
    for facts in &FACTS {
        let line = format!("polylet-{}:", facts.service);
        let has = |text: &str| text.lines().any(|found| found.starts_with(&line));
        assert!(has(&groups), "no group {line} {log}");
        assert_eq!(has(&users), facts.account == Account::Own, "{line} {log}");
    }
}

/// A restart of the runtime, or its end, does not restart or stop a service.
#[test]
fn no_service_is_bound_to_a_runtime() {
    for (name, text) in files() {
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let binds = ["Requires=", "BindsTo=", "Requisite=", "PartOf=", "Upholds="];
            let is_bound = binds.iter().any(|key| line.starts_with(key));
            let of_runtime = line.contains("containerd") || line.contains("crio");
            assert!(!(is_bound && of_runtime), "{name}: {line}");
        }
    }
}

/// Whether systemd-analyze is installed; says so if not.
fn has_analyze() -> bool {
    let found = Command::new("systemd-analyze").arg("--version").output();
    let found = found.is_ok_and(|output| output.status.success());
    if !found {
        println!("skipped: systemd-analyze is not installed (package systemd)");
    }
    found
}

/// An installation with the units and something executable for each program that they start.
fn installation() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    let units = dir.path().join("usr/lib/systemd/system");
    fs::create_dir_all(&units).expect("a directory");
    for name in files()
        .keys()
        .filter_map(|name| name.strip_prefix("system/"))
    {
        let text = fs::read(systemd().join("system").join(name)).expect("a unit");
        fs::write(units.join(name), text).expect("a unit");
    }
    // What the units depend on by default.
    for name in [
        "sysinit",
        "basic",
        "sockets",
        "shutdown",
        "multi-user",
        "local-fs",
        "network",
    ] {
        let text = "[Unit]\nDescription=x\nDefaultDependencies=no\n";
        fs::write(units.join(format!("{name}.target")), text).expect("a unit");
    }
    let programs = DESCRIPTORS.map(|descriptor| match descriptor.service {
        SUPERVISOR => "usr/lib/polylet/polylet".to_owned(),
        service => format!("usr/lib/polylet/polylet-{service}"),
    });
    let others = ["usr/bin/find", "usr/bin/install", "usr/bin/mkdir"].map(str::to_owned);
    for program in programs.iter().chain(&others) {
        let path = dir.path().join(program);
        fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        fs::write(&path, "#!/bin/sh\n").expect("a program");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a mode");
    }
    dir
}

#[test]
fn units_are_valid() {
    if !has_analyze() {
        return;
    }
    let dir = installation();
    let names: Vec<String> = files()
        .keys()
        .filter_map(|name| name.strip_prefix("system/").map(str::to_owned))
        .collect();
    let output = Command::new("systemd-analyze")
        .args(["verify", "--man=no", "--recursive-errors=yes"])
        .arg(format!("--root={}", dir.path().display()))
        .args(&names)
        .output()
        .expect("systemd-analyze");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.is_empty(), "{text}");
}

#[test]
fn services_have_no_more_rights_than_they_need() {
    if !has_analyze() {
        return;
    }
    for name in files()
        .keys()
        .filter_map(|name| name.strip_prefix("system/"))
    {
        if !name.ends_with(".service") || name == ALL_IN_ONE {
            continue;
        }
        let service = name
            .trim_start_matches("polylet-")
            .trim_end_matches(".service");
        let exposed = EXPOSED.iter().find(|(exposed, ..)| *exposed == service);
        let limit = exposed.map_or(MAX_EXPOSURE, |(_, limit, _)| *limit);
        let exposure = exposure(&systemd().join("system").join(name));
        println!("{name}: {exposure}");
        assert!(
            exposure <= limit,
            "{name}: exposure {exposure}, at most {limit}"
        );
        let is_root = FACTS
            .iter()
            .any(|facts| facts.service == service && facts.account == Account::Root);
        assert!(
            exposed.is_some() || !is_root,
            "{name} runs as root without a reason here"
        );
    }
}

fn exposure(unit: &Path) -> f64 {
    let output = Command::new("systemd-analyze")
        .args(["security", "--offline=yes", "--no-pager"])
        .arg(unit)
        .output()
        .expect("systemd-analyze");
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text
        .lines()
        .find(|line| line.contains("Overall exposure level"));
    let level = line.and_then(|line| line.rsplit(": ").next()?.split_whitespace().next());
    let level = level.and_then(|level| level.parse().ok());
    level.unwrap_or_else(|| panic!("no exposure of {}: {text}", unit.display()))
}
