//! Comparison with the kubelet: two nodes of one cluster in one run, sampled in turn and observed
//! through the API server.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use polylet_harness::cluster::Patch;
use polylet_harness::{Cluster, ClusterOptions, HarnessError, Node, NodeOptions};
use serde_json::{Value, json};

use self::agent::Agent;
use self::patches::{ApiServerBaseline, Patches};
use crate::baseline::{Baseline, BaselineShape};
use crate::manifests::{self, ManifestKind, VOLUMES_AND_TOKEN};
use crate::measure::{Samples, ms};
use crate::pod_hooks::NoHooks;
use crate::{BenchArgs, idle, memory};

/// One of the two agents.
mod agent;
/// What an agent costs the API server.
mod api_server;
/// What pods cost in calls, requests and processor time.
mod calls;
/// Polylet alone with many pods.
mod large;
/// The API server's own time for a change.
mod patches;
/// Many pods at once.
mod scale;
/// The cost of scrapes.
mod scrapes;
/// Commands, logs and forwarded ports.
mod streams;
/// The result.
mod table;

pub(crate) use large::large;
pub(crate) use table::ClusterTable;
use table::TimesInTurn;

const SETTINGS: &str = "/api/v1/namespaces/default/configmaps";

/// Events and other requests that follow Ready are counted too.
const SETTLE: Duration = Duration::from_secs(3);

/// Measures everything, the kubelet first.
pub(crate) async fn run(args: &BenchArgs, bin_dir: PathBuf) -> Result<ClusterTable, HarnessError> {
    let cluster = Cluster::start(&ClusterOptions::default(), &|line| eprintln!("{line}")).await?;
    objects(&cluster).await?;
    let kubelet = side(&cluster, args, &bin_dir, true).await?;
    let polylet = side(&cluster, args, &bin_dir, false).await?;
    let mut bench = Bench {
        floor: Baseline::new(&polylet.node)?,
        table: ClusterTable::new(&polylet.node.containerd.version().await?),
        sides: [kubelet, polylet],
        cluster: &cluster,
        window: Duration::from_secs(args.rest),
    };
    if args.scrapes {
        bench.scrapes(args.burst).await?;
    } else if args.streams {
        bench.streams(args.starts).await?;
    } else if args.api_server {
        bench.api_server(args.burst).await?;
    } else if args.calls {
        bench.calls(args.burst).await?;
    } else {
        bench.all(args).await?;
    }
    let Bench { sides, table, .. } = bench;
    for side in sides {
        side.remove()?;
    }
    cluster.remove()?;
    Ok(table)
}

/// Prints the memory of Polylet's processes on a node of a cluster, without pods and with `--burst`
/// pods.
pub(crate) async fn memory(
    args: &BenchArgs,
    bin_dir: &std::path::Path,
) -> Result<(), HarnessError> {
    let cluster = Cluster::start(&ClusterOptions::default(), &|line| eprintln!("{line}")).await?;
    let mut polylet = side(&cluster, args, bin_dir, false).await?;
    memory::at_rest(&polylet.node, "in a cluster, 0 pods").await;
    polylet
        .many_up(args.burst, &manifest(ManifestKind::Bare)?)
        .await?;
    let title = format!("in a cluster, {} pods", args.burst);
    memory::at_rest(&polylet.node, &title).await;
    polylet.remove()?;
    cluster.remove()
}

async fn side<'a>(
    cluster: &'a Cluster,
    args: &BenchArgs,
    bin_dir: &std::path::Path,
    kubelet: bool,
) -> Result<Agent<'a>, HarnessError> {
    let name = if kubelet { "kubelet" } else { "polylet" };
    let connection = match args.api_server {
        true => Some(cluster.line().await?),
        false => None,
    };
    let mut options: NodeOptions = match &connection {
        Some(connection) => cluster.node_options_by(name, &connection.server())?,
        None => cluster.node_options(name)?,
    };
    options.bin_dir = Some(bin_dir.to_owned());
    options.flavour = args.flavour();
    options.kubelet["maxPods"] = json!(args.burst.max(50) * 2 + 10);
    let node = Node::prepare(options, &|_| {}).await?;
    Agent::start(cluster, node, kubelet, connection).await
}

async fn objects(cluster: &Cluster) -> Result<(), HarnessError> {
    let [config, secret] = manifests::objects();
    let secrets = SETTINGS.replace("configmaps", "secrets");
    cluster.client().create(SETTINGS, &config).await?;
    cluster.client().create(&secrets, &secret).await?;
    Ok(())
}

/// The API object of a pod. A bare pod has no service account token either.
fn manifest(kind: ManifestKind) -> Result<Value, HarnessError> {
    let text = kind.manifest("");
    let mut pod: Value = serde_json::from_str(&text).map_err(|source| HarnessError::Json {
        what: "a manifest",
        from: kind.name().to_owned(),
        source,
    })?;
    if matches!(kind, ManifestKind::Bare) {
        pod["spec"]["automountServiceAccountToken"] = json!(false);
    }
    Ok(pod)
}

struct Bench<'a> {
    sides: [Agent<'a>; 2],
    cluster: &'a Cluster,
    floor: Baseline,
    table: ClusterTable,
    window: Duration,
}

impl Bench<'_> {
    async fn all(&mut self, args: &BenchArgs) -> Result<(), HarnessError> {
        self.one_at_a_time(args.starts).await?;
        self.requests(args.starts.min(5)).await?;
        self.exits(args.exits).await?;
        self.file().await?;
        self.rest(0).await?;
        for count in args.counts() {
            self.at_once(count).await?;
        }
        Ok(())
    }

    /// Measures raw calls and both agents in turn, so that disturbances affect all alike.
    async fn one_at_a_time(&mut self, starts: usize) -> Result<(), HarnessError> {
        let kinds = [
            (ManifestKind::Bare, &[][..]),
            (ManifestKind::Volumes, VOLUMES_AND_TOKEN),
        ];
        let mut ups: [TimesInTurn; 2] = Default::default();
        let mut downs: [TimesInTurn; 2] = Default::default();
        // The first iteration is warm-up.
        for n in 0..=starts {
            eprint!("\rone at a time: {n}/{starts} ");
            for (at, (kind, volumes)) in kinds.iter().enumerate() {
                let pod = manifest(*kind)?;
                let shape = BaselineShape {
                    volumes,
                    ..BaselineShape::default()
                };
                let share = ApiServerBaseline::new(self.cluster, pod.clone());
                let (raw_up, raw_down) = self.floor.one(n, shape, &NoHooks).await?;
                let (shared_up, shared_down) = self.floor.one(n, shape, &share).await?;
                if n > 0 {
                    ups[at].raw.add(raw_up);
                    ups[at].shared.add(shared_up);
                    downs[at].raw.add(raw_down);
                    downs[at].shared.add(shared_down);
                }
                for (which, side) in self.sides.iter_mut().enumerate() {
                    let name = format!("{}-{}-{n}", kind.name(), side.program());
                    let (started, stopped) = (side.up(&name, &pod).await?, side.down(&name).await?);
                    side.settle().await?;
                    if n > 0 {
                        ups[at].sides[which].add(started);
                        downs[at].sides[which].add(stopped);
                    }
                }
            }
        }
        eprintln!();
        for (step, times) in [("create → Ready", &ups), ("delete → gone", &downs)] {
            for ((kind, _), times) in kinds.iter().zip(times) {
                let words = match kind {
                    ManifestKind::Volumes => "ConfigMap, Secret, token, emptyDir",
                    _ => "bare",
                };
                let what = format!("{step}, {words}, of {starts}");
                self.table.times_over_both(&what, times);
            }
        }
        Ok(())
    }

    /// Counts the API requests of a pod's start.
    async fn requests(&mut self, starts: usize) -> Result<(), HarnessError> {
        let pod = manifest(ManifestKind::Volumes)?;
        let mut cells = [String::new(), String::new()];
        for (side, cell) in self.sides.iter_mut().zip(&mut cells) {
            eprintln!("requests of {}", side.program());
            let (_, mark) = self.cluster.requests(0)?;
            for n in 0..starts {
                side.up(&format!("counted-{}-{n}", side.program()), &pod)
                    .await?;
            }
            tokio::time::sleep(SETTLE).await;
            let asked = side.for_pods(mark)?;
            for request in side.requests(mark)? {
                eprintln!("  {}", request.line());
            }
            let each = |count: usize| count as f64 / starts.max(1) as f64;
            *cell = format!(
                "{:.1} ({:.1} reads, {:.1} writes, {:.1} events)",
                each(asked.all()),
                each(asked.reads),
                each(asked.writes),
                each(asked.events)
            );
            for n in 0..starts {
                side.down(&format!("counted-{}-{n}", side.program()))
                    .await?;
            }
        }
        let what = "API requests per start, ConfigMap, Secret, token";
        self.table.line(what, "", cells);
        Ok(())
    }

    /// The baseline is the runtime's report plus one status patch.
    async fn exits(&mut self, exits: usize) -> Result<(), HarnessError> {
        let mut samples: [Samples; 2] = Default::default();
        let mut floor = Samples::default();
        let mut pod = manifest(ManifestKind::Bare)?;
        pod["spec"]["restartPolicy"] = json!("Never");
        let mut patches = Patches::new(self.cluster).await?;
        for n in 0..exits {
            eprint!("\rexits: {}/{exits} ", n + 1);
            let exit = self.floor.exit(2000 + n, &self.sides[1].node).await?;
            floor.add(exit + patches.one().await?);
            for (side, samples) in self.sides.iter_mut().zip(&mut samples) {
                let name = format!("exit-{}-{n}", side.program());
                side.up(&name, &pod).await?;
                samples.add(side.exit(&name).await?);
                side.down(&name).await?;
            }
        }
        eprintln!();
        patches.remove().await?;
        let what = format!("exit → watch event, of {exits}");
        self.table.times(&what, Some(&floor), &samples);
        Ok(())
    }

    /// Time until a changed ConfigMap is in the files of one pod on each node. The kubelet syncs once a
    /// minute.
    async fn file(&mut self) -> Result<(), HarnessError> {
        eprintln!("ConfigMap change, up to two minutes");
        let pod = manifest(ManifestKind::Volumes)?;
        let mut files = Vec::new();
        for side in &mut self.sides {
            let name = format!("file-{}", side.program());
            side.up(&name, &pod).await?;
            let root = side.node.dirs().root.join("pods").join(side.uid(&name));
            files.push(root.join("volumes/kubernetes.io~configmap/config/a"));
        }
        let began = Instant::now();
        let change = json!({ "data": { "a": "changed" } });
        let path = format!("{SETTINGS}/bench");
        self.cluster
            .client()
            .patch(&path, Patch::Merge, &change)
            .await?;
        let mut seen = [None, None];
        let mut pause = tokio::time::interval(Duration::from_millis(2));
        while seen.contains(&None) && began.elapsed() < Duration::from_secs(150) {
            pause.tick().await;
            for (seen, file) in seen.iter_mut().zip(&files) {
                let changed = || std::fs::read_to_string(file).is_ok_and(|text| text == "changed");
                if seen.is_none() && changed() {
                    *seen = Some(began.elapsed());
                }
            }
        }
        let cells = seen.map(|seen| match seen {
            Some(took) => format!("{} ms", ms(took)),
            None => "over 150 s".to_owned(),
        });
        self.table.line("ConfigMap → file", "", cells);
        for side in &mut self.sides {
            side.down(&format!("file-{}", side.program())).await?;
        }
        Ok(())
    }

    /// Measures both agents at the same time, since both are idle.
    async fn rest(&mut self, pods: usize) -> Result<(), HarnessError> {
        eprintln!("rest with {pods} pods, {} s", self.window.as_secs());
        let (_, mark) = self.cluster.requests(0)?;
        let [kubelet, polylet] = &self.sides;
        let (kubelet, polylet) = tokio::join!(
            idle::measure(&kubelet.node, kubelet.program(), self.window),
            idle::measure(&polylet.node, polylet.program(), self.window)
        );
        let cells = [kubelet, polylet]
            .map(|rest| format!("{:.4} core, {:.1} MiB PSS", rest.cores, rest.pss_mib));
        self.table
            .line(format!("at rest with {pods} pods"), "", cells);
        let mut asked = [String::new(), String::new()];
        for (side, asked) in self.sides.iter().zip(&mut asked) {
            let minutes = self.window.as_secs_f64() / 60.0;
            *asked = format!("{:.1}", side.requests(mark)?.len() as f64 / minutes);
        }
        self.table
            .line(format!("API requests a minute, {pods} pods"), "", asked);
        Ok(())
    }

    /// Counts status patches after a restart; none are expected.
    async fn restarts(&mut self, pods: usize) -> Result<(), HarnessError> {
        let mut cells = [String::new(), String::new()];
        for (side, cell) in self.sides.iter_mut().zip(&mut cells) {
            eprintln!("restart of {}", side.program());
            let (_, mark) = self.cluster.requests(0)?;
            side.restart().await?;
            tokio::time::sleep(Duration::from_secs(15)).await;
            let requests = side.requests(mark)?;
            let patches = requests
                .iter()
                .filter(|request| request.resource == "pods/status" && request.verb == "patch");
            *cell = patches.count().to_string();
        }
        let what = format!("status patches after a restart with {pods} pods");
        self.table.line(what, "", cells);
        Ok(())
    }
}
