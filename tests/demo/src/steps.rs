use std::collections::BTreeSet;
use std::process::Output;
use std::time::{Duration, Instant};

use polylet_harness::node::SERVICES;
use polylet_harness::{Cluster, Flavour, HarnessError, Node, NodeOptions, PodView};
use polylet_harness::{build, http, machine, packages, scratch};

use crate::tell::{Steps, line};
use crate::{cluster, example};

/// What was made so far.
#[derive(Debug, Default)]
pub(crate) struct Demo {
    node: Option<Node>,
    cluster: Option<Cluster>,
}

impl Demo {
    /// All steps, in order. With `once` it returns after the last one, else never.
    pub(crate) async fn show(&mut self, once: bool, whole: bool) -> Result<(), HarnessError> {
        println!("Polylet demo: a Kubernetes node agent in ten processes, and one pod on it.");
        println!(
            "It makes a containerd, a bridge network and cgroups of its own, and removes them."
        );
        machine::need_root()?;
        machine::architecture()?;
        let mut steps = Steps::new(if whole { 6 } else { 5 });
        install(&mut steps)?;
        let step = steps.begin("Building the release binaries (minutes when it is the first time)");
        let bin_dir = build::release().await?;
        step.done(&format!("built in {}", bin_dir.display()));
        for left in scratch::remove_leftovers() {
            line(&format!("left by an earlier run, and still there: {left}"));
        }
        let mut options = NodeOptions {
            name: "demo".to_owned(),
            ..NodeOptions::default()
        };
        if whole {
            let cluster = self.cluster.insert(cluster::start(&mut steps).await?);
            options = cluster.node_options("demo")?;
        }
        options.flavour = Flavour::Debian;
        options.bin_dir = Some(bin_dir);
        self.start(&mut steps, options).await?;
        match (&self.cluster, &self.node) {
            (Some(cluster), Some(node)) => cluster::show(&mut steps, cluster, node, once).await?,
            (None, Some(node)) => show(&mut steps, node, once).await?,
            (_, None) => return Ok(()),
        }
        if once {
            return Ok(());
        }
        std::future::pending().await
    }

    async fn start(&mut self, steps: &mut Steps, options: NodeOptions) -> Result<(), HarnessError> {
        let step = steps.begin("Starting a containerd of its own");
        let node = Node::prepare(options, &line).await?;
        let node = self.node.insert(node);
        line(&format!("socket  {}", node.containerd.endpoint()));
        let network = &node.containerd.network;
        line(&format!(
            "network {}.0/24 on bridge {}",
            network.prefix, network.bridge
        ));
        step.done(&node.containerd.version().await?);

        let step = steps.begin("Starting the node: polylet run");
        node.up().await?;
        step.done(&format!(
            "{} services and their supervisor serve",
            SERVICES.len()
        ));
        Ok(())
    }

    /// Removes all that was made, whichever step it came to.
    pub(crate) fn remove(&mut self) -> Result<(), HarnessError> {
        let (node, cluster) = (self.node.take(), self.cluster.take());
        if node.is_none() && cluster.is_none() {
            return Ok(());
        }
        println!("\nRemoving it: pods, services, containerd, bridge, cgroups, mounts, files");
        let removed = node.map_or(Ok(()), Node::remove);
        cluster.map_or(Ok(()), Cluster::remove)?;
        removed?;
        println!("Nothing is left behind.");
        Ok(())
    }
}

/// The example as a static pod.
async fn show(steps: &mut Steps, node: &Node, once: bool) -> Result<(), HarnessError> {
    let step = steps.begin("Putting the example into the manifest directory");
    line(&node.dirs().manifests.display().to_string());
    let pod = ready(node).await?;
    step.done(&format!("pod {} is Ready", pod.name));

    tell(node, &["status"]).await?;
    tell(node, &["pods"]).await?;
    answer(pod.ip()).await?;
    traced(node, &pod.uid).await;
    tell(node, &["trace", &pod.name]).await?;
    if !once {
        invite(node, &pod);
    }
    Ok(())
}

/// What is missing is named before anything is installed.
fn install(steps: &mut Steps) -> Result<(), HarnessError> {
    let step = steps.begin("Looking for what the node needs");
    let missing = packages::missing();
    if missing.is_empty() {
        step.done("all there: containerd, runc, CNI plugins, a static busybox, iptables");
        return Ok(());
    }
    line("installing from this machine's Debian mirror:");
    for need in &missing {
        line(&format!(
            "  {:<27} {} ({})",
            need.package, need.program, need.why
        ));
    }
    packages::install(&missing, &|text| line(&format!("  {text}")))?;
    step.done("installed");
    Ok(())
}

/// Waits for the example to be Ready and tells each change on the way.
async fn ready(node: &Node) -> Result<PodView, HarnessError> {
    let begun = Instant::now();
    example::put(node)?;
    let last = std::cell::RefCell::new(String::new());
    node.wait_pod(example::NAME, "to be Ready", |pod| {
        let now = pod.line();
        if *last.borrow() != now {
            line(&format!(
                "{:>6.0} ms  {now}",
                begun.elapsed().as_secs_f64() * 1000.0
            ));
            *last.borrow_mut() = now;
        }
        pod.is_ready()
    })
    .await
}

/// Runs a `polylet` command and shows it with its output.
pub(crate) async fn tell(node: &Node, words: &[&str]) -> Result<(), HarnessError> {
    println!("\n$ polylet {}", words.join(" "));
    let Output {
        status,
        stdout,
        stderr,
    } = node.cli(words).await?;
    print!(
        "{}{}",
        String::from_utf8_lossy(&stdout),
        String::from_utf8_lossy(&stderr)
    );
    if status.success() {
        return Ok(());
    }
    Err(HarnessError::Failed {
        program: format!("polylet {}", words.join(" ")),
        status: status.to_string(),
        output: "see above".to_owned(),
    })
}

pub(crate) async fn answer(ip: &str) -> Result<(), HarnessError> {
    println!("\nThe pod answers at http://{ip}:{}/", example::PORT);
    let answer = http::get(ip, example::PORT, "/").await?;
    line(&answer.status);
    answer.body.lines().for_each(line);
    Ok(())
}

/// Spans arrive in batches: waits a little until most processes have told theirs.
pub(crate) async fn traced(node: &Node, uid: &str) {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(5) {
        let trace = node.trace(uid).await;
        let spans = trace.map(|trace| trace.spans).unwrap_or_default();
        let services: BTreeSet<_> = spans.into_iter().map(|span| span.service).collect();
        if services.contains("status-reporter") && services.len() >= 6 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn invite(node: &Node, pod: &PodView) {
    let polylet = node.program("polylet").display().to_string();
    let config = node.config().display().to_string();
    println!("\nIt stays until Ctrl-C. In another terminal:");
    for words in ["pods", "status", &format!("logs {} -f", pod.name)] {
        line(&format!("{polylet} {words} --config {config}"));
    }
    line(&format!("curl http://{}:{}/", pod.ip(), example::PORT));
    line(&format!(
        "rm {}/pod.yaml    # and the pod goes",
        node.dirs().manifests.display()
    ));
}
