use std::time::Instant;

use polylet_harness::build::Profile;
use polylet_harness::node::SERVICES;
use polylet_harness::{Cluster, Flavour, HarnessError, Node, NodeOptions, PodView};
use polylet_harness::{build, machine, packages, scratch};

use crate::progress::{BuildLine, DemoSteps, line};
use crate::show::{print_response, run_polylet, wait_for_trace};
use crate::{cluster, example};

/// The demo's resources, as far as they exist.
#[derive(Debug, Default)]
pub(crate) struct Demo {
    node: Option<Node>,
    cluster: Option<Cluster>,
}

impl Demo {
    /// Runs all steps in order. Returns after the last one with `once`, else never.
    pub(crate) async fn run(&mut self, once: bool, in_cluster: bool) -> Result<(), HarnessError> {
        println!("Polylet demo: a Kubernetes node agent in eleven processes, and one pod on it.");
        println!("It uses a private containerd, bridge network and cgroups, and removes them.");
        machine::need_root()?;
        machine::architecture()?;
        let mut steps = DemoSteps::new(if in_cluster { 6 } else { 5 });
        install_packages(&mut steps)?;
        let step = steps.start("Building the eleven programs of the node, without optimization");
        let progress = BuildLine::new();
        let bin_dir = build::programs(Profile::Demo, &|now| progress.show(now)).await;
        progress.finish();
        let bin_dir = bin_dir?;
        step.finish(&format!("built in {}", bin_dir.display()));
        for left in scratch::remove_leftovers() {
            line(&format!(
                "could not remove what an earlier run left: {left}"
            ));
        }
        let mut options = NodeOptions {
            name: "demo".to_owned(),
            ..NodeOptions::default()
        };
        if in_cluster {
            let cluster = self.cluster.insert(cluster::start(&mut steps).await?);
            options = cluster.node_options("demo")?;
        }
        options.flavour = Flavour::Debian;
        options.bin_dir = Some(bin_dir);
        self.start(&mut steps, options).await?;
        match (&self.cluster, &self.node) {
            (Some(cluster), Some(node)) => cluster::run(&mut steps, cluster, node, once).await?,
            (None, Some(node)) => run_static_pod(&mut steps, node, once).await?,
            (_, None) => return Ok(()),
        }
        if once {
            return Ok(());
        }
        std::future::pending().await
    }

    async fn start(
        &mut self,
        steps: &mut DemoSteps,
        options: NodeOptions,
    ) -> Result<(), HarnessError> {
        let step = steps.start("Starting a private containerd");
        let node = Node::prepare(options, &line).await?;
        let node = self.node.insert(node);
        line(&format!("socket  {}", node.containerd.endpoint()));
        let network = &node.containerd.network;
        line(&format!(
            "network {}.0/22 on bridge {}",
            network.prefix, network.bridge
        ));
        step.finish(&node.containerd.version().await?);

        let step = steps.start("Starting the node: polylet run");
        node.up().await?;
        step.finish(&format!(
            "{} services and the supervisor are running",
            SERVICES.len()
        ));
        Ok(())
    }

    /// Removes all resources, whichever step was reached.
    pub(crate) fn remove(&mut self) -> Result<(), HarnessError> {
        let (node, cluster) = (self.node.take(), self.cluster.take());
        if node.is_none() && cluster.is_none() {
            return Ok(());
        }
        println!("\nRemoving pods, services, containerd, bridge, cgroups, mounts and files");
        let removed = node.map_or(Ok(()), Node::remove);
        cluster.map_or(Ok(()), Cluster::remove)?;
        removed?;
        println!("Nothing is left behind.");
        Ok(())
    }
}

/// Runs the example as a static pod.
async fn run_static_pod(
    steps: &mut DemoSteps,
    node: &Node,
    once: bool,
) -> Result<(), HarnessError> {
    let step = steps.start("Writing the example into the manifest directory");
    line(&node.dirs().manifests.display().to_string());
    let pod = wait_ready(node).await?;
    step.finish(&format!("pod {} is Ready", pod.name));

    run_polylet(node, &["status"]).await?;
    run_polylet(node, &["pods"]).await?;
    print_response(pod.ip()).await?;
    wait_for_trace(node, &pod.uid).await;
    run_polylet(node, &["trace", &pod.name]).await?;
    if !once {
        print_commands(node, &pod);
    }
    Ok(())
}

/// Installs missing packages, and lists them first.
fn install_packages(steps: &mut DemoSteps) -> Result<(), HarnessError> {
    let step = steps.start("Checking for required packages");
    let missing = packages::missing();
    if missing.is_empty() {
        step.finish("installed: containerd, runc, CNI plugins, a static busybox, iptables");
        return Ok(());
    }
    line("installing with apt-get:");
    for need in &missing {
        line(&format!(
            "  {:<27} {} ({})",
            need.package, need.program, need.why
        ));
    }
    packages::install(&missing, &|text| line(&format!("  {text}")))?;
    step.finish("installed");
    Ok(())
}

/// Waits until the example is Ready and prints each change of its status.
async fn wait_ready(node: &Node) -> Result<PodView, HarnessError> {
    let started = Instant::now();
    example::put(node)?;
    let printed = std::cell::RefCell::new(String::new());
    node.wait_pod(example::NAME, "to be Ready", |pod| {
        let now = pod.line();
        if *printed.borrow() != now {
            line(&format!(
                "{:>6.0} ms  {now}",
                started.elapsed().as_secs_f64() * 1000.0
            ));
            *printed.borrow_mut() = now;
        }
        pod.is_ready()
    })
    .await
}

fn print_commands(node: &Node, pod: &PodView) {
    let polylet = node.program("polylet").display().to_string();
    let config = node.config().display().to_string();
    println!("\nThe node runs until Ctrl-C. In another terminal:");
    for args in ["pods", "status", &format!("logs {} -f", pod.name)] {
        line(&format!("{polylet} {args} --config {config}"));
    }
    line(&format!("curl http://{}:{}/", pod.ip(), example::PORT));
    line(&format!(
        "rm {}/pod.yaml    # stops the pod",
        node.dirs().manifests.display()
    ));
}
