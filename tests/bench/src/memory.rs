//! What the memory of each process at rest consists of: `cargo node-bench -- --memory`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

use polylet_harness::{HarnessError, Node, NodeOptions, procs};
use procfs::process::{MMPermissions, MMapPath, MemoryMap, Process};

use crate::manifests::Kind;
use crate::pods::Pods;
use crate::{Args, cluster};

/// After a burst the processes give back what only it needed; that takes them some seconds.
const SETTLE: Duration = Duration::from_secs(10);

/// A process's memory by what it is, in bytes of its proportional share (PSS): a page that several
/// processes map counts in each by its part.
#[derive(Clone, Copy, Default)]
struct Parts {
    /// Of its own program, as it is in the file: code and constants.
    program: u64,
    /// Of its own program, written: tables of addresses, filled in at the start, and variables.
    written: u64,
    /// Of libraries.
    libraries: u64,
    heap: u64,
    /// Of the first thread, and what else has no file: other threads' stacks.
    stacks: u64,
}

impl Parts {
    fn add(&mut self, map: &MemoryMap, program: &std::path::Path) {
        let bytes = |key: &str| map.extension.map.get(key).copied().unwrap_or_default();
        let (whole, anonymous) = (bytes("Pss"), bytes("Anonymous"));
        match &map.pathname {
            MMapPath::Path(path) if path == program => {
                let written = anonymous.min(whole);
                self.written += written;
                self.program += whole - written;
            }
            MMapPath::Path(_) | MMapPath::Vdso | MMapPath::Vvar => self.libraries += whole,
            MMapPath::Heap => self.heap += whole,
            // The allocator's arenas of other threads, and what it maps for large pieces.
            MMapPath::Anonymous if map.perms.contains(MMPermissions::WRITE) => self.heap += whole,
            _ => self.stacks += whole,
        }
    }

    fn all(&self) -> [u64; 5] {
        [
            self.program,
            self.written,
            self.libraries,
            self.heap,
            self.stacks,
        ]
    }
}

/// Of all processes of the node whose names begin with `polylet`, by name.
fn of_node(node: &Node) -> BTreeMap<String, Parts> {
    let processes = procs::of_run(node.scratch());
    let ours = processes
        .iter()
        .filter(|process| process.name().starts_with("polylet"));
    ours.filter_map(|process| Some((process.name().to_owned(), parts(process.pid)?)))
        .collect()
}

fn parts(pid: u32) -> Option<Parts> {
    let process = Process::new(i32::try_from(pid).ok()?).ok()?;
    let program = process.exe().ok()?;
    let mut parts = Parts::default();
    for map in process.smaps().ok()?.0 {
        parts.add(&map, &program);
    }
    Some(parts)
}

fn table(title: &str, processes: &BTreeMap<String, Parts>) -> String {
    let mut text = format!(
        "| {title}, KiB PSS | program | written | libraries | heap | stack | all |\n\
         | --- | --- | --- | --- | --- | --- | --- |\n"
    );
    let mut sum = [0; 5];
    let mut line = |name: &str, parts: [u64; 5]| {
        let _ = write!(text, "| {name} |");
        for part in parts {
            let _ = write!(text, " {} |", part / 1024);
        }
        let _ = writeln!(text, " {} |", parts.iter().sum::<u64>() / 1024);
    };
    for (name, parts) in processes {
        line(name, parts.all());
        for (sum, part) in sum.iter_mut().zip(parts.all()) {
            *sum += part;
        }
    }
    line("all", sum);
    text
}

/// A node by itself and a node of a cluster, each without pods and with `--burst` of them. Prints each
/// table when it is there.
pub(crate) async fn run(args: &Args, bin_dir: PathBuf) -> Result<(), HarnessError> {
    by_itself(args, bin_dir.clone()).await?;
    cluster::memory(args, &bin_dir).await
}

async fn by_itself(args: &Args, bin_dir: PathBuf) -> Result<(), HarnessError> {
    let mut node = Node::start(NodeOptions {
        bin_dir: Some(bin_dir),
        flavour: args.flavour(),
        kubelet: serde_json::json!({ "maxPods": args.burst + 10 }),
        ..NodeOptions::default()
    })
    .await?;
    node.wait_in_step().await?;
    at_rest(&node, "by itself, 0 pods").await;
    let mut pods = Pods::follow(&node)?;
    let names = pods.put_many(args.burst, |name| Kind::Bare.manifest(name))?;
    pods.all_ready(&names).await?;
    at_rest(&node, &format!("by itself, {} pods", args.burst)).await;
    drop(pods);
    node.remove()
}

/// The table of a node, once nothing has happened for a while.
pub(crate) async fn at_rest(node: &Node, title: &str) {
    tokio::time::sleep(SETTLE).await;
    println!("{}", table(title, &of_node(node)));
}
