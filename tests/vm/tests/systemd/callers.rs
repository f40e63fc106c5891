use crate::node::SystemdNode;
use crate::pods::LASTING;
use crate::services::{each_unit, in_sync, run_as_declared, units};

/// The unit of the callers, and the file of what they have seen.
const UNIT: &str = "test-callers";
const SEEN: &str = "/run/test-callers";

/// The first argument is an address, the second a path. A call is broken when it was accepted and not answered;
/// pods without such a file answer that.
const CALL: &str = r#"exec 2>/dev/null
exec 3<>"/dev/tcp/$1" || { echo "refused $1"; exit; }
printf 'GET %s HTTP/1.0\r\n\r\n' "$2" >&3
read -t 120 -r line <&3
case "$line" in *" 200 "*|*" 404 "*) echo ok;; *) echo "broken $1 $line";; esac
"#;

/// Clients in the machine that call pods and the node API without pause, each time by a new connection.
pub(crate) struct Callers<'a> {
    node: &'a SystemdNode,
}

impl<'a> Callers<'a> {
    pub(crate) async fn start(node: &'a SystemdNode) -> Self {
        let guest = node.guest();
        polylet_vm::ok(guest.write("/root/call", CALL).await);
        let mut calls = "bash /root/call 127.0.0.1/10248 /healthz/ping;".to_owned();
        for name in LASTING {
            let pod = node.pod(name).await;
            let address = pod["status"]["podIP"].as_str().unwrap_or_default();
            calls.push_str(&format!("bash /root/call {address}/8080 /;"));
        }
        let script = format!("while :; do {{ {calls} }} >> {SEEN}; done");
        node.sh(&format!(
            "systemd-run --quiet --unit={UNIT} bash -c '{script}'"
        ))
        .await;
        Self { node }
    }

    /// Fails if a call since the last time was refused or, unless the process that had accepted it was killed,
    /// broken.
    pub(crate) async fn assert_answered(&self, when: &str, may_break: bool) {
        let take = format!("mv {SEEN} {SEEN}.taken; sleep 1; cat {SEEN}.taken");
        let seen = self.node.sh(&take).await;
        let answered = seen.lines().filter(|line| *line == "ok").count();
        let is_problem = |line: &&str| !(*line == "ok" || may_break && line.starts_with("broken"));
        let problems: Vec<&str> = seen.lines().filter(is_problem).collect();
        println!("  {answered} calls answered");
        assert!(answered > 0, "{when}: {seen}");
        assert!(problems.is_empty(), "{when}: {problems:#?}");
    }

    pub(crate) async fn stop(self) {
        self.node.sh(&format!("systemctl stop {UNIT}")).await;
    }
}

/// Each service killed and restarted, one at a time and all at once. Restarts come last: they end systemd's
/// count of automatic ones.
pub(crate) async fn round(callers: &Callers<'_>, round: u32) {
    let node = callers.node;
    let answered = async |what: &str, may_break| {
        in_sync(node).await;
        let when = format!("round {round}: {what}");
        callers.assert_answered(&when, may_break).await;
    };
    for unit in each_unit() {
        kill(node, &unit).await;
    }
    answered("each killed", true).await;
    kill(node, &units()).await;
    answered("all killed", true).await;
    for unit in each_unit() {
        node.sh(&format!("systemctl restart {unit}")).await;
    }
    answered("each restarted", false).await;
    // As after a change of the configuration.
    node.sh(&format!("systemctl restart {}", units())).await;
    answered("all restarted", false).await;
    run_as_declared(node).await;
}

/// Returns when other processes run instead.
async fn kill(node: &SystemdNode, units: &str) {
    let pids = format!("systemctl show --value --property=MainPID {units}");
    let before = node.sh(&pids).await;
    let before: Vec<&str> = before.split_whitespace().collect();
    node.sh(&format!("systemctl kill --signal=KILL {units}"))
        .await;
    let what = format!("other processes of {units}");
    node.wait_for(&what, &pids, |now| {
        let now: Vec<&str> = now.split_whitespace().collect();
        now.len() == before.len() && now.iter().all(|pid| *pid != "0" && !before.contains(pid))
    })
    .await;
}
