use std::collections::BTreeMap;

use polylet_packaging::DESCRIPTORS;
use polylet_packaging::accounts::group;
use polylet_packaging::facts::{self, Account};
use polylet_vm::ok;
use serde_json::Value;

use crate::node::SystemdNode;
use crate::pods;

/// What `systemctl show` says of each service.
const PROPERTIES: &str = "Id,ActiveState,SubState,NRestarts,User,MainPID,StatusText,ControlGroup";

/// A service that is declared to need few rights, so that it shows what systemd does to it.
const HUNG: &str = "polylet-image-gc.service";

/// The units of all services. The machine's agent has a unit of a similar name.
pub(crate) fn each_unit() -> impl Iterator<Item = String> {
    let services = DESCRIPTORS.iter();
    services.map(|one| format!("{}.service", group(one.service)))
}

/// Their names in one line.
pub(crate) fn units() -> String {
    each_unit().collect::<Vec<_>>().join(" ")
}

/// The properties of all services' units, by unit.
async fn shown(node: &SystemdNode) -> BTreeMap<String, BTreeMap<String, String>> {
    let script = format!("systemctl show --property={PROPERTIES} {}", units());
    let text = node.sh(&script).await;
    let unit = |block: &str| {
        let lines = block.lines().filter_map(|line| line.split_once('='));
        let properties: BTreeMap<String, String> = lines
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        (properties["Id"].clone(), properties)
    };
    text.split("\n\n").map(unit).collect()
}

/// Waits until all services serve and follow each other.
pub(crate) async fn in_sync(node: &SystemdNode) {
    // The line follows the peers, which takes a moment.
    let in_step = "systemctl show --property=StatusText 'polylet-*.service'";
    node.wait_for("the services to be in sync", in_step, |text| {
        !text.contains("not in sync") && text.contains("10 services are serving")
    })
    .await;
}

/// Each service runs as its user, in the slice of Polylet, and shows what it works on.
pub(crate) async fn run_as_declared(node: &SystemdNode) {
    in_sync(node).await;
    let shown = shown(node).await;
    for descriptor in DESCRIPTORS {
        let unit = format!("{}.service", group(descriptor.service));
        let properties = &shown[&unit];
        let expected_user = match facts::of(descriptor.service).account {
            Account::Own => group(descriptor.service),
            Account::Root => String::new(),
        };
        let cgroup = format!("/polylet.slice/{unit}");
        println!("  {unit}: {}", properties["StatusText"]);
        for (name, expected) in [
            ("ActiveState", "active"),
            ("SubState", "running"),
            ("NRestarts", "0"),
            ("User", &expected_user),
            ("ControlGroup", &cgroup),
        ] {
            assert_eq!(properties[name], expected, "{unit}: {name}");
        }
        assert_ne!(properties["StatusText"], "", "{unit}");
        let status = format!("/proc/{}/status", properties["MainPID"]);
        let uid = format!("sed -n 's/^Uid:\\s*\\([0-9]*\\).*/\\1/p' {status}");
        let expected = match expected_user.as_str() {
            "" => "0\n".to_owned(),
            user => node.sh(&format!("id -u {user}")).await,
        };
        assert_eq!(node.sh(&uid).await, expected, "{unit}");
    }
    let failed = node
        .sh("systemctl list-units --failed --no-legend --plain")
        .await;
    assert_eq!(failed, "", "failed units");
}

/// Entries of the journal can be found by pod.
pub(crate) async fn log_with_fields(node: &SystemdNode) {
    let uid = node.pod("burstable").await["metadata"]["uid"].clone();
    let uid = uid.as_str().unwrap_or_default().to_owned();
    let entries = node
        .sh(&format!(
            "journalctl --no-pager --output=cat POLYLET_POD_UID={uid}"
        ))
        .await;
    assert!(entries.contains("pod accepted"), "{entries}");
}

/// Those of what failed are found by trace, too.
pub(crate) async fn log_with_traces(node: &SystemdNode) {
    for (pod, message) in pods::failing() {
        node.create("pods", &pod).await;
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        let uid = node.pod(name).await["metadata"]["uid"].clone();
        let uid = uid.as_str().unwrap_or_default().to_owned();
        let find = format!("journalctl --no-pager --output=json POLYLET_POD_UID={uid}");
        let what = format!("an entry of {name} with a trace");
        let entries = node
            .wait_for(&what, &find, |text| trace_of(text, message).is_some())
            .await;
        node.delete(name).await;
        let trace = trace_of(&entries, message).unwrap_or_default();
        let find = format!("journalctl --no-pager --output=cat TRACE_ID={trace}");
        let entries = node.sh(&find).await;
        assert!(entries.contains(message), "{entries}");
    }
}

/// The trace of the first entry with a message.
fn trace_of(entries: &str, message: &str) -> Option<String> {
    let mut entries = entries
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    entries.find_map(|entry| {
        let is_found = entry["MESSAGE"].as_str()?.contains(message);
        let trace = entry["TRACE_ID"].as_str().filter(|_| is_found)?;
        Some(trace.to_owned())
    })
}

/// A hung service, which the watchdog finds. Returned at once: that takes half a minute.
pub(crate) async fn hang(node: &SystemdNode) -> String {
    let pid = node
        .sh(&format!("systemctl show --value --property=MainPID {HUNG}"))
        .await;
    node.sh(&format!("kill -STOP {}", pid.trim())).await;
    pid
}

/// The watchdog has killed the hung service, and systemd has started another process.
pub(crate) async fn restarted_by_watchdog(node: &SystemdNode, hung: &str) {
    let main = format!("systemctl show --property=MainPID,ActiveState,NRestarts {HUNG}");
    let old = format!("MainPID={hung}");
    node.wait_for("another process instead of the hung one", &main, |text| {
        !text.contains(&old)
            && text.contains("ActiveState=active")
            && text.contains("NRestarts=1\n")
    })
    .await;
    // systemd's own messages go to the console in this machine, with colors.
    let console = ok(std::fs::read_to_string(node.vm.console()));
    let killed = format!("{HUNG}: Failed with result 'watchdog'");
    assert!(console.contains(&killed), "{console}");
    // Automatic restarts are counted until the next start by hand.
    node.sh(&format!("systemctl restart {HUNG}")).await;
}
