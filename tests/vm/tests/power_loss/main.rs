//! The machine loses its power, and its disk's cache, at random moments of a churn of pods. After each
//! boot nothing is torn, nothing that ended runs again, nothing is orphaned, and statuses are true.
//!
//! `POLYLET_TEST_ROUNDS` is the number of power cuts, `POLYLET_VM_SEED` repeats the choices of a run.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use fastrand::Rng;
use polylet_harness::cluster::is_ready;
use polylet_harness::wait::Poll;
use polylet_harness::{Cluster, guard};
use polylet_vm::agent::StateInspection;
use polylet_vm::guest::until;
use polylet_vm::node::{self, NODE};
use polylet_vm::{GuestNode, Hardware, ProgramSet, VirtualMachine, VmError, ok};
use serde_json::Value;

/// Comparison of the cluster's state with the node's.
mod audit;
/// The churn of pods.
mod churn;
/// Counts of executions.
mod executions;
/// Objects of the churn.
mod pods;

use audit::ApiPod;
use churn::Churn;
use executions::ExecutionCounter;

/// Power cuts by default: enough to notice a rule that is broken always.
const ROUNDS: u64 = 3;

/// Time until the node is Ready and agrees with the API server again.
const SETTLE_LIMIT: Duration = Duration::from_secs(480);

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

#[tokio::test]
#[ignore = "needs root, QEMU, the programs of a cluster: cargo verify -- --only vm"]
async fn power_cuts_tear_repeat_and_orphan_nothing() {
    guard::on_signals();
    let rounds = number("POLYLET_TEST_ROUNDS").unwrap_or(ROUNDS);
    let seed = number("POLYLET_VM_SEED").unwrap_or_else(|| Rng::new().u64(..1_000_000));
    println!("\n{rounds} power cuts with POLYLET_VM_SEED={seed}");
    let mut random = Rng::with_seed(seed);

    let say = |line: &str| eprintln!("{line}");
    let cluster = ok(Cluster::start(&node::cluster_options(), &say).await);
    let counter = ok(ExecutionCounter::start().await);
    let programs = ProgramSet::new(Path::new(env!("CARGO_BIN_EXE_polylet-vm-agent")));
    let mut vm = ok(VirtualMachine::create(&programs, Hardware::default(), &say).await);
    ok(vm.boot().await);
    ok(GuestNode::default().install(ok(vm.guest()), &cluster).await);
    ok(node::services_ready(ok(vm.guest())).await);
    ok(cluster.wait_node_ready(NODE).await);

    let mut churn = Churn::new(&cluster, counter.port(), random.fork());
    ok(churn.begin().await);
    for round in 1..=rounds {
        let round = Round {
            label: format!("{round}/{rounds}"),
            cluster: &cluster,
            counter: &counter,
        };
        round.run(&mut vm, &mut churn, &mut random).await;
    }
    ok(vm.power_off().await);
    ok(vm.check_file_system());
    ok(vm.remove());
    ok(cluster.remove());
}

struct Round<'a> {
    label: String,
    cluster: &'a Cluster,
    counter: &'a ExecutionCounter,
}

impl Round<'_> {
    async fn run(&self, vm: &mut VirtualMachine, churn: &mut Churn<'_>, random: &mut Rng) {
        // Some cuts come while the first pods start, others after a while.
        let duration = Duration::from_millis(random.u64(2_000..15_000));
        let before_churn = churn.changes;
        let churned = tokio::time::timeout(duration, churn.run(ok(vm.guest()))).await;
        if let Ok(error) = churned {
            ok::<(), VmError>(Err(error));
        }
        let changes = churn.changes - before_churn;
        let loss = ok(vm.cut_power_while_writing(random).await);
        // What the API server knew, and what had run, when the power was lost.
        let before = ok(self.pods().await);
        let runs_before = self.counter.begun();
        println!(
            "round {}: cut after {:.1} s, {changes} changes and {} pods; of {} unflushed sectors {} lost, {} outdated",
            self.label,
            duration.as_secs_f64(),
            before.len(),
            loss.unflushed,
            loss.lost,
            loss.outdated
        );

        let booted = ok(vm.boot().await);
        let guest = ok(vm.guest());
        let begun = Instant::now();
        // Asked of the API server: the machine has enough to do.
        let ready = self.node_ready(&guest.boot_id().unwrap_or_default()).await;
        if ready.is_err() {
            vm.diagnose().await;
        }
        ok(ready);
        let serving = begun.elapsed();
        let found = ok(node::services_ready(guest).await);
        ok(churn.read_static_pods(guest).await);
        let pods = self.settled(vm, churn).await;
        if pods.is_err() {
            vm.diagnose().await;
        }
        let pods = ok(pods);
        let settled = begun.elapsed();
        let after = ok(node::inspect(guest).await);
        println!(
            "  booted in {:.1} s, node Ready after {:.1} s more, settled after {:.1} s: {} pods, {} ended; \
             state files at boot: {} whole, {} torn, {} set aside",
            booted.as_secs_f64(),
            serving.as_secs_f64(),
            settled.as_secs_f64(),
            pods.len(),
            pods.iter().filter(|pod| pod.has_ended()).count(),
            found.whole,
            found.torn.len(),
            found.set_aside.len(),
        );
        let mut wrong = repeated(&before, &runs_before, self.counter);
        wrong.extend(changed_ends(&before, &pods));
        let torn = self.counter.torn().into_iter();
        wrong.extend(torn.map(|uid| format!("torn ConfigMap in pod {uid}")));
        wrong.extend(unusable_files(found));
        wrong.extend(unusable_files(after));
        assert!(wrong.is_empty(), "round {}: {wrong:#?}", self.label);
    }

    /// All pods, mirrors included, of the node.
    async fn pods(&self) -> Result<Vec<ApiPod>, VmError> {
        let path = format!("/api/v1/pods?fieldSelector=spec.nodeName={NODE}");
        let list = self.cluster.client().get(&path).await?;
        Ok(audit::api_pods(&list.unwrap_or(Value::Null)))
    }

    /// Waits until the node of this boot is Ready.
    async fn node_ready(&self, boot_id: &str) -> Result<(), VmError> {
        let path = format!("/api/v1/nodes/{NODE}");
        until("the node to be Ready", SETTLE_LIMIT, || async {
            let node = self.cluster.client().get(&path).await?;
            let node = node.unwrap_or(Value::Null);
            let is_this_boot = node["status"]["nodeInfo"]["bootID"] == boot_id;
            Ok(match is_this_boot && is_ready(&node) {
                true => Poll::Ready(()),
                false => Poll::Pending(format!("of this boot: {is_this_boot}")),
            })
        })
        .await
    }

    /// Waits until everything agrees, twice in succession.
    async fn settled(
        &self,
        vm: &VirtualMachine,
        churn: &Churn<'_>,
    ) -> Result<Vec<ApiPod>, VmError> {
        let guest = vm.guest()?;
        let static_pods = churn.static_pods();
        let agreed = std::cell::Cell::new(0);
        let what = "the node to agree with the API server";
        until(what, SETTLE_LIMIT, || async {
            let unsettled = audit::unsettled(&self.pods().await?, static_pods);
            if !unsettled.is_empty() {
                agreed.set(0);
                return Ok(Poll::Pending(format!("{unsettled:#?}")));
            }
            let observed = node::observe(guest).await?;
            let pods = self.pods().await?;
            let differences = audit::compare(&pods, static_pods, &observed);
            if !differences.is_empty() {
                agreed.set(0);
                return Ok(Poll::Pending(format!("{differences:#?}")));
            }
            agreed.set(agreed.get() + 1);
            Ok(match agreed.get() {
                1 => Poll::Pending("agreed once".to_owned()),
                _ => Poll::Ready(pods),
            })
        })
        .await
    }
}

/// Pods that ran again although they had ended, or although they run at most once.
fn repeated(
    before: &[ApiPod],
    runs_before: &BTreeMap<String, usize>,
    counter: &ExecutionCounter,
) -> Vec<String> {
    let runs = counter.begun();
    let of = |runs: &BTreeMap<String, usize>, uid: &str| runs.get(uid).copied().unwrap_or_default();
    let mut found = Vec::new();
    for pod in before {
        let (earlier, now) = (of(runs_before, &pod.uid), of(&runs, &pod.uid));
        if pod.has_ended() && now > earlier {
            found.push(format!(
                "{} had ended ({}) and ran again",
                pod.name, pod.phase
            ));
        }
        if pod.runs_once() && now > 1 {
            found.push(format!("{} ran {now} times", pod.name));
        }
    }
    found
}

/// Pods that had ended, and have ended in another way or not at all now.
fn changed_ends(before: &[ApiPod], after: &[ApiPod]) -> Vec<String> {
    let ended = before.iter().filter(|pod| pod.has_ended());
    let changed = ended.filter_map(|pod| {
        let now = after.iter().find(|now| now.uid == pod.uid)?;
        let (name, before, now) = (&pod.name, &pod.phase, &now.phase);
        (before != now).then(|| format!("{name} was {before} and is {now}"))
    });
    changed.collect()
}

/// State files that are torn or were set aside.
fn unusable_files(found: StateInspection) -> impl Iterator<Item = String> {
    let torn = found.torn.into_iter().map(|file| format!("torn: {file}"));
    let set_aside = found.set_aside.into_iter();
    torn.chain(set_aside.map(|file| format!("set aside: {file}")))
}
