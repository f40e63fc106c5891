//! A step that takes longer is found: starts in which the runtime takes 20 ms more for each container, among starts in
//! which it does not, are compared by `polylet trace diff`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use polylet_e2e::priority::{prefer_pods, prefer_this_process};
use polylet_e2e::programs::{cli, shown, text};
use polylet_e2e::runtime_proxy::{CallDelay, ProxiedNode};
use polylet_e2e::steps::Steps;
use polylet_e2e::{RUNS, ok, pod};
use polylet_harness::{Node, NodeOptions, wait};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// Starts of each set.
const STARTS: usize = 30;
/// The call that is delayed, and by how much.
const CALL: &str = "/CreateContainer";
const DELAY: Duration = Duration::from_millis(20);
/// The sets, which are namespaces: two that are alike, and one with the delay.
const SETS: [&str; 3] = ["first", "second", "delayed"];
/// How long all starts may take.
const LIMIT: Duration = Duration::from_secs(15 * 60);

#[tokio::test]
#[ignore = "needs root, a container runtime and built services: cargo verify"]
async fn the_step_that_takes_longer_is_found() {
    prefer_this_process();
    let is_delayed = Arc::new(AtomicBool::new(false));
    let delay: CallDelay = {
        let is_delayed = Arc::clone(&is_delayed);
        Arc::new(
            move |path, _| match path.ends_with(CALL) && is_delayed.load(Ordering::Relaxed) {
                true => DELAY,
                false => Duration::ZERO,
            },
        )
    };
    // In memory: a disk takes longer while something else writes to it.
    let options = NodeOptions {
        image_disk: Some(512),
        state_disk: Some(64),
        ..NodeOptions::default()
    };
    let ProxiedNode { node, .. } = &ProxiedNode::start(options, &delay).await;
    prefer_pods(node);
    let files = ok(tempfile::tempdir());
    let mut steps = Steps::new();
    start_and_remove(node, "warm-up", 0).await;
    let mut recorders = Vec::new();
    for set in SETS {
        recorders.push(Recorder::start(node, &files.path().join(set), set).await);
    }
    steps
        .require("starts of all sets, in turn", async {
            for n in 0..STARTS {
                // Each set is as often first, second and third.
                for place in 0..SETS.len() {
                    let set = SETS[(n + place) % SETS.len()];
                    is_delayed.store(set == "delayed", Ordering::Relaxed);
                    start_and_remove(node, set, n).await;
                }
            }
            for recorder in recorders {
                recorder.finish().await;
            }
        })
        .await;
    let file = |set: &str| files.path().join(set);
    steps
        .run("the delayed step and the total are slower", async {
            let found = Compared::new(node, &file("first"), &file("delayed")).await;
            let mut expected = BTreeSet::from(["sync-coordinator/cri.CreateContainer".to_owned()]);
            // On a machine with other work, the total may vary by so much that 20 ms are nothing.
            if found.total_is_precise || found.slower.contains("total") {
                expected.insert("total".to_owned());
            }
            assert_eq!(found.slower, expected);
            assert_eq!(found.exit_code, Some(2));
        })
        .await;
    steps
        .run("nothing is slower in starts that are alike", async {
            let found = Compared::new(node, &file("first"), &file("second")).await;
            assert_eq!(found.slower, BTreeSet::new());
            assert_eq!(found.exit_code, Some(0));
        })
        .await;
    steps.finish();
}

/// The result of `polylet trace diff`.
struct Compared {
    /// What is slower in the second file.
    slower: BTreeSet<String>,
    /// The shift of the total is known more precisely than by half of the delay in either direction.
    total_is_precise: bool,
    exit_code: Option<i32>,
}

impl Compared {
    async fn new(node: &Node, a: &Path, b: &Path) -> Compared {
        let (a, b) = (shown(a), shown(b));
        let args = ["trace", "diff", &a, &b, "--fail-on", "slower"];
        println!("{}", text(&cli(node, &args).await));
        let output = cli(node, &[&args[..], &["-o", "json"]].concat()).await;
        let found: Value = ok(serde_json::from_slice(&output.stdout));
        assert_eq!(found["traces"], json!([STARTS, STARTS]));
        let shapes = found["shapes"].as_array().cloned().unwrap_or_default();
        assert_eq!(shapes.len(), 1, "{found}");
        let (total, steps) = (&shapes[0]["total"], shapes[0]["steps"].as_array());
        let rows = steps.into_iter().flatten().chain([total]);
        let slower = rows.filter(|row| row["verdict"] == "slower");
        let slower = slower.filter_map(|row| row["step"].as_str().map(str::to_owned));
        let bound = |name: &str| total["shiftUs"][name].as_f64().expect("a number");
        Compared {
            slower: slower.collect(),
            total_is_precise: bound("high") - bound("low") < DELAY.as_secs_f64() * 1e6,
            exit_code: output.status.code(),
        }
    }
}

/// Starts a pod in a namespace and removes it again.
async fn start_and_remove(node: &Node, namespace: &str, n: usize) {
    let name = format!("{namespace}-{n}");
    // The time of networks varies by more than the delay.
    let simple = json!({ "hostNetwork": true });
    let mut manifest: Value = ok(serde_json::from_str(&pod(&name, RUNS, &simple)));
    manifest["metadata"]["namespace"] = namespace.into();
    let file = format!("{name}.json");
    ok(node.put(&file, &manifest.to_string()));
    ok(node.wait_ready(&name).await);
    ok(node.take(&file));
    ok(node.wait_gone(&name).await);
}

/// `polylet trace record` of a namespace's starts.
struct Recorder {
    file: PathBuf,
    child: Child,
}

impl Recorder {
    /// Returns when it records.
    async fn start(node: &Node, file: &Path, namespace: &str) -> Recorder {
        let mut command = Command::new(node.program("polylet"));
        command.args(["trace", "record"]).arg(file);
        command.args(["--namespace", namespace]);
        command.args(["--starts", &STARTS.to_string()]);
        command.arg("--config").arg(node.config());
        command.stdin(Stdio::null()).stderr(Stdio::piped());
        let mut child = ok(command.kill_on_drop(true).spawn());
        let errors = child.stderr.take().expect("a pipe");
        let mut lines = BufReader::new(errors).lines();
        let first = tokio::time::timeout(wait::timeout(), lines.next_line()).await;
        let first = ok(ok(first));
        assert_eq!(first.as_deref(), Some("recording; Ctrl-C ends it"));
        Recorder {
            file: file.to_owned(),
            child,
        }
    }

    /// Waits until all starts are in the file.
    async fn finish(mut self) {
        let ended = ok(ok(tokio::time::timeout(LIMIT, self.child.wait()).await));
        assert!(ended.success() && self.file.is_file(), "{ended}");
    }
}
