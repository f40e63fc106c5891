//! A service without a function, which replaces each of the ten in the supervisor's tests. Its name is
//! that of its file.

use std::process::ExitCode;

use polylet_kit::{Service, ServiceDescriptor};

fn main() -> ExitCode {
    let own = std::env::args().next().unwrap_or_default();
    let service = own.rsplit("polylet-").next().unwrap_or_default().to_owned();
    let descriptor: &'static ServiceDescriptor = Box::leak(Box::new(ServiceDescriptor {
        service: Box::leak(service.into_boxed_str()),
        version: "0.0.1",
        about: "replaces a service in tests",
        serves: &[],
        calls: &[],
        state_files: &[],
        subprocesses: &[],
    }));
    polylet_kit::main(descriptor, |ctx| async move {
        // With the attributes of a pod, by which tests find the trace.
        let span = tracing::info_span!(
            target: "polylet_fake_service",
            "fake_service.start",
            k8s.pod.uid = "u-1",
            k8s.pod.name = "demo",
            k8s.namespace.name = "default",
            polylet.result = ctx.node_name(),
        );
        polylet_kit::cause::start_trace(&span);
        polylet_kit::cause::name_root(&span, polylet_kit::cause::root::POD_START);
        polylet_kit::cause::record_outcome(&span, polylet_kit::cause::outcome::READY);
        drop(span);
        let run_dir = ctx.run_dir().to_owned();
        Ok(Service::new().on_drain(async move {
            let _ = std::fs::write(run_dir.join("drained"), "");
            Vec::new()
        }))
    })
}
