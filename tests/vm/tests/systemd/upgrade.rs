use polylet_packaging::DESCRIPTORS;
use polylet_packaging::SUPERVISOR;

use crate::node::SystemdNode;

/// As an upgrade of the package does it: another file in the place of the old one. Bytes after the end of
/// a program do not matter to the kernel.
const ANOTHER_BUILD: &str = "cd /usr/lib/polylet/package; cp polylet-multicall .new; echo x >> .new; mv .new polylet-multicall";

/// The end of an upgrade of the package, whose builds all have one version.
const CONFIGURE: &str = "/var/lib/dpkg/info/polylet.postinst configure 0.1.0";

/// All services, one after the other, to another build of the package, and back.
pub(crate) async fn there_and_back(node: &SystemdNode) {
    let before = programs(node).await;
    node.sh(ANOTHER_BUILD).await;
    node.sh(CONFIGURE).await;
    // A program that was replaced is shown as deleted.
    assert_eq!(programs(node).await, before, "an upgrade of the package");
    node.sh("polylet upgrade --all --to /usr/lib/polylet/package")
        .await;
    let upgraded = programs(node).await;
    for (service, (before, now)) in services().zip(before.iter().zip(&upgraded)) {
        assert_ne!(before, now, "{service}");
    }
    node.sh("polylet rollback --all").await;
    assert_eq!(programs(node).await, before, "rolled back");
    let history = node.sh("polylet history").await;
    for service in services() {
        let done = |kind: &str| {
            history.lines().any(|line| {
                let words: Vec<&str> = line.split_whitespace().collect();
                words.contains(&kind) && words.contains(&service) && words.contains(&"done")
            })
        };
        assert!(done("upgrade") && done("rollback"), "{service}:\n{history}");
    }
}

/// A program that does not become ready is replaced by the one before.
pub(crate) async fn failure_is_rolled_back(node: &SystemdNode) {
    let before = programs(node).await;
    let program = "/root/polylet-prober";
    let script = format!(
        "printf '%s\\n' '#!/bin/sh' 'case \"$1\" in --descriptor) exec /usr/lib/polylet/polylet-prober --descriptor;; esac' \
         'exit 3' > {program}; chmod 755 {program}; polylet upgrade prober --timeout 60s --to {program}"
    );
    let output = node
        .guest()
        .run(&["sh", "-c", &script], "", crate::node::STEP_LIMIT)
        .await;
    let output = polylet_vm::ok(output);
    assert!(!output.succeeded(), "{output:?}");
    assert!(
        output.text().contains("prober was rolled back"),
        "{output:?}"
    );
    assert_eq!(programs(node).await, before);
}

fn services() -> impl Iterator<Item = &'static str> {
    let services = DESCRIPTORS.iter().map(|one| one.service);
    services.filter(|service| *service != SUPERVISOR)
}

/// The files that the services' processes run.
async fn programs(node: &SystemdNode) -> Vec<String> {
    let mut programs = Vec::new();
    for service in services() {
        let pid = format!("$(systemctl show --value --property=MainPID polylet-{service}.service)");
        programs.push(node.sh(&format!("readlink /proc/{pid}/exe")).await);
    }
    programs
}
