//! The first command of the README, `cargo demo`: a node on this machine with a containerd of its
//! own and an example pod, and nothing of it left afterwards. With `--cluster` the node belongs to a
//! Kubernetes cluster.

use std::process::ExitCode;

use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};

/// A cluster of one node.
mod cluster;
/// The example's manifests.
mod example;
/// The steps of the demo.
mod steps;
/// Lines for people.
mod tell;

/// Starts a node on this machine, with an example pod. Ctrl-C removes all of it.
#[derive(Debug, Parser)]
#[command(name = "cargo demo")]
struct Args {
    /// Ends by itself once everything was shown.
    #[arg(long)]
    once: bool,
    /// A real Kubernetes control plane beside the node, for kubectl. Its programs are built with Go
    /// the first time, which takes minutes.
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
        // Dropping the steps wherever they are is how a signal stops them; what they made is
        // removed below in every case.
        let ended = tokio::select! {
            ended = demo.show(args.once, args.cluster) => ended,
            () = stopped() => Ok(()),
        };
        let removed = demo.remove();
        match ended.and(removed) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => failed(&polylet_harness::error::report(&error)),
        }
    })
}

fn failed(why: &str) -> ExitCode {
    eprintln!("\ndemo: {why}");
    ExitCode::FAILURE
}

async fn stopped() {
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
