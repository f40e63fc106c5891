//! `cargo demo`: a node with a private containerd and an example pod on this machine, removed
//! without a trace at the end. With `--cluster` the node joins a Kubernetes cluster.

use std::process::ExitCode;

use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};

/// The example on a cluster of one node.
mod cluster;
/// The example's manifests.
mod example;
/// Output to the terminal.
mod progress;
/// Output of commands, responses and traces.
mod show;
/// The steps of the demo.
mod steps;

/// Starts a node with an example pod on this machine; Ctrl-C removes both.
#[derive(Debug, Parser)]
#[command(name = "cargo demo")]
struct Args {
    /// Exit once everything was shown.
    #[arg(long)]
    once: bool,
    /// Start a Kubernetes control plane beside the node, for kubectl. The first run builds its
    /// programs with Go, which takes minutes.
    #[arg(long)]
    cluster: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return failed(&error.to_string()),
    };
    runtime.block_on(async {
        let mut demo = steps::Demo::default();
        // A signal drops the steps wherever they are; their resources are removed below in any case.
        let result = tokio::select! {
            result = demo.run(args.once, args.cluster) => result,
            () = terminated() => Ok(()),
        };
        let removed = demo.remove();
        match result.and(removed) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => failed(&polylet_harness::error::report(&error)),
        }
    })
}

fn failed(reason: &str) -> ExitCode {
    eprintln!("\ndemo: {reason}");
    ExitCode::FAILURE
}

async fn terminated() {
    let streams = (
        signal(SignalKind::interrupt()),
        signal(SignalKind::terminate()),
    );
    let (Ok(mut interrupt), Ok(mut terminate)) = streams else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}
