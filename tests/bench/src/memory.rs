//! Memory of each process at rest, by kind: `cargo node-bench -- --memory`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

use polylet_harness::{HarnessError, Node, NodeOptions, procs};
use procfs::process::{MMPermissions, MMapPath, MemoryMap, Process};

use crate::BenchArgs;
use crate::manifests::ManifestKind;
use crate::pods::PodDriver;

/// Processes return memory that they do not use 3 and 23 seconds after their last work, and the last statuses and
/// events of a burst wait up to 20 seconds.
const SETTLE: Duration = Duration::from_secs(50);

/// A process's memory by kind in bytes of PSS (proportional set size: a shared page is divided among
/// the processes that map it).
#[derive(Clone, Copy, Default)]
struct MemoryBreakdown {
    /// File-backed pages of the executable: code and constants.
    program: u64,
    /// Modified pages of the executable: relocations and variables.
    written: u64,
    /// Shared libraries.
    libraries: u64,
    heap: u64,
    /// The main thread's stack and all remaining mappings.
    stacks: u64,
}

impl MemoryBreakdown {
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
            // The allocator's arenas of other threads and its mappings for large allocations.
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

/// Memory of the node's processes whose names begin with `polylet`, by name.
fn of_node(node: &Node) -> BTreeMap<String, MemoryBreakdown> {
    let processes = procs::list(node.scratch());
    let ours = processes
        .iter()
        .filter(|process| process.name().starts_with("polylet"));
    ours.filter_map(|process| Some((process.name().to_owned(), parts(process.pid)?)))
        .collect()
}

fn parts(pid: u32) -> Option<MemoryBreakdown> {
    let process = Process::new(i32::try_from(pid).ok()?).ok()?;
    let program = process.exe().ok()?;
    let mut parts = MemoryBreakdown::default();
    for map in process.smaps().ok()?.0 {
        parts.add(&map, &program);
    }
    Some(parts)
}

fn table(title: &str, processes: &BTreeMap<String, MemoryBreakdown>) -> String {
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

/// Measures a standalone node without pods and with `--burst` pods. Prints each table when it is
/// complete.
pub(crate) async fn standalone(args: &BenchArgs, bin_dir: PathBuf) -> Result<(), HarnessError> {
    let mut node = Node::start(NodeOptions {
        bin_dir: Some(bin_dir),
        flavour: args.flavour(),
        kubelet: serde_json::json!({ "maxPods": args.burst + 10 }),
        ..NodeOptions::default()
    })
    .await?;
    node.wait_in_step().await?;
    at_rest(&node, "by itself, 0 pods").await;
    let mut pods = PodDriver::follow(&node)?;
    let names = pods.put_many(args.burst, |name| ManifestKind::Bare.manifest(name))?;
    pods.all_ready(&names).await?;
    at_rest(&node, &format!("by itself, {} pods", args.burst)).await;
    drop(pods);
    node.remove()
}

/// Prints the table of a node after [`SETTLE`].
pub(crate) async fn at_rest(node: &Node, title: &str) {
    tokio::time::sleep(SETTLE).await;
    println!("{}", table(title, &of_node(node)));
}
