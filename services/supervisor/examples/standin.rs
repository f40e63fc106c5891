//! A service that does nothing but be one: stands in for each of the nine in the supervisor's
//! tests. It is whoever its file name says.

use std::process::ExitCode;

use polylet_kit::{Manifest, Service};

fn main() -> ExitCode {
    let own = std::env::args().next().unwrap_or_default();
    let service = own.rsplit("polylet-").next().unwrap_or_default().to_owned();
    let manifest: &'static Manifest = Box::leak(Box::new(Manifest {
        service: Box::leak(service.into_boxed_str()),
        version: "0.0.1",
        about: "stands in for a service",
        serves: &[],
        calls: &[],
        keeps: &[],
    }));
    polylet_kit::main(manifest, |ctx| async move {
        // Named like a pod, so that a test finds its trace.
        let span = tracing::info_span!(
            target: "polylet_standin",
            "standin.start",
            k8s.pod.uid = "u-1",
            k8s.pod.name = "demo",
            k8s.namespace.name = "default",
            result = ctx.node_name(),
        );
        polylet_kit::cause::new_trace(&span);
        drop(span);
        let run_dir = ctx.run_dir().to_owned();
        Ok(Service::new().on_drain(async move {
            let _ = std::fs::write(run_dir.join("drained"), "");
            Vec::new()
        }))
    })
}
