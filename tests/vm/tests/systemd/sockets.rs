use std::collections::BTreeMap;

use polylet_packaging::accounts::group;
use polylet_packaging::facts::{self, Account};
use polylet_packaging::{DESCRIPTORS, SUPERVISOR, callers};
use polylet_vm::agent::ConnectOutcome;
use serde::de::DeserializeOwned;

use crate::node::SystemdNode;

/// A user of the system that is no service's.
const STRANGER: &str = "nobody";

/// Codes of gRPC.
const OK: i32 = 0;
const PERMISSION_DENIED: i32 = 7;

/// For each user and each socket: a connection is served if and only if the service is declared to call,
/// or is its own. Services that run as root may call all.
pub(crate) async fn open_for_declared_callers(node: &SystemdNode) {
    let own = DESCRIPTORS
        .iter()
        .map(|one| one.service)
        .filter(|service| facts::of(service).account == Account::Own);
    let callers_of: BTreeMap<&str, Vec<&str>> = DESCRIPTORS
        .iter()
        .map(|one| (one.service, callers(one.service)))
        .collect();
    let mut wrong = Vec::new();
    println!("  {:<18}{}", "user", names().join(" "));
    for user in own.map(group).chain(["root", STRANGER].map(str::to_owned)) {
        let outcomes = connect(node, &user).await;
        let mut line = format!("  {:<18}", user.trim_start_matches("polylet-"));
        for service in DESCRIPTORS.iter().map(|one| one.service) {
            let outcome = &outcomes[&socket(service)];
            let caller = user.trim_start_matches("polylet-");
            let may =
                caller == "root" || caller == service || callers_of[service].contains(&caller);
            let expected = match may {
                true => ConnectOutcome::Served,
                false => ConnectOutcome::Refused,
            };
            let mark = if *outcome == ConnectOutcome::Served {
                "yes"
            } else {
                "-"
            };
            line.push_str(&format!("{mark:<width$} ", width = service.len()));
            if *outcome != expected {
                wrong.push(format!(
                    "{user} to {service}: {outcome:?}, not {expected:?}"
                ));
            }
        }
        println!("{line}");
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// A socket whose file lets others in does not help them: the service looks at its peer.
pub(crate) async fn peers_are_checked_by_the_service(node: &SystemdNode) {
    let path = socket("sync-coordinator");
    node.sh(&format!("chmod 666 {path}")).await;
    let outcomes = connect(node, STRANGER).await;
    node.sh(&format!("chmod 660 {path}")).await;
    assert_eq!(outcomes[&path], ConnectOutcome::Closed);
}

/// A service of another user that may send its spans to the supervisor, and call others, can neither have a program
/// executed nor keep a service from working.
pub(crate) async fn no_caller_controls_a_process(node: &SystemdNode) {
    let user = group("node-api");
    let service = "/polylet.supervisor.v1.SupervisorService/";
    let changes = ["Upgrade", "Rollback", "RecordStarts"].map(|name| format!("{service}{name}"));
    let mut wrong = Vec::new();
    for (method, code) in call(node, &user, "supervisor", &changes).await {
        if code != PERMISSION_DENIED {
            wrong.push(format!("{method}: {code}"));
        }
    }
    let export = ["/opentelemetry.proto.collector.trace.v1.TraceService/Export".to_owned()];
    let exported = call(node, &user, "supervisor", &export).await;
    assert_eq!(exported[&export[0]], OK, "{user} may send spans");

    let lifecycle = "/polylet.lifecycle.v1.LifecycleService/";
    let (info, drain) = (format!("{lifecycle}GetInfo"), format!("{lifecycle}Drain"));
    let called = DESCRIPTORS.iter().map(|one| one.service);
    for service in called.filter(|service| callers(service).contains(&"node-api")) {
        if service == SUPERVISOR {
            continue;
        }
        let methods = [info.clone(), drain.clone()];
        let codes = call(node, &user, service, &methods).await;
        if (codes[&info], codes[&drain]) != (OK, PERMISSION_DENIED) {
            wrong.push(format!("{service}: {codes:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The groups of each running service are those of its user and of its unit, so that what holds for the user
/// holds for it.
pub(crate) async fn services_have_no_other_groups(node: &SystemdNode) {
    for service in DESCRIPTORS.iter().map(|one| one.service) {
        if facts::of(service).account == Account::Root {
            continue;
        }
        let user = group(service);
        let pid = format!("$(systemctl show --value --property=MainPID {user}.service)");
        let groups = node
            .sh(&format!("sed -n 's/^Groups:\\s*//p' /proc/{pid}/status"))
            .await;
        let mut expected = node.sh(&format!("id -G {user}")).await;
        let directives = facts::of(service).needs.iter();
        for (directive, value) in directives.flat_map(|need| need.directives) {
            if *directive == "SupplementaryGroups" {
                let id = format!(" $(getent group {value} | cut -d: -f3)");
                expected.push_str(&node.sh(&format!("echo \"{id}\"")).await);
            }
        }
        let mut expected: Vec<&str> = expected.split_whitespace().collect();
        let mut found: Vec<&str> = groups.split_whitespace().collect();
        expected.sort_unstable();
        expected.dedup();
        found.sort_unstable();
        assert_eq!(found, expected, "{user}");
    }
}

fn names() -> Vec<&'static str> {
    DESCRIPTORS.iter().map(|one| one.service).collect()
}

fn socket(service: &str) -> String {
    format!("/run/polylet/{service}.sock")
}

/// Connections to all sockets as a user.
async fn connect(node: &SystemdNode, user: &str) -> BTreeMap<String, ConnectOutcome> {
    let sockets: Vec<String> = names().into_iter().map(socket).collect();
    run_agent(node, user, &format!("connect {}", sockets.join(" "))).await
}

/// The status codes of empty calls to a service as a user, by method.
async fn call(
    node: &SystemdNode,
    user: &str,
    service: &str,
    methods: &[String],
) -> BTreeMap<String, i32> {
    let arguments = format!("call {} {}", socket(service), methods.join(" "));
    run_agent(node, user, &arguments).await
}

/// What a command of the agent prints as a user.
async fn run_agent<T: DeserializeOwned>(
    node: &SystemdNode,
    user: &str,
    arguments: &str,
) -> BTreeMap<String, T> {
    let script = format!(
        "setpriv --reuid={user} --regid=$(id -g {user}) --init-groups /programs/polylet-vm-agent {arguments}"
    );
    let printed = node.sh(&script).await;
    match serde_json::from_str(&printed) {
        Ok(outcomes) => outcomes,
        Err(error) => panic!("{error}: {printed}"),
    }
}
