//! A minimal service. The environment variable `MISHAP` selects a failure of its task.

use std::process::ExitCode;

use polylet_kit::{Api, Ctx, Dependency, Service, ServiceDescriptor};
use polylet_wire::levels;

#[global_allocator]
static ALLOCATOR: polylet_kit::SampledAllocator = polylet_kit::SampledAllocator;

static DESCRIPTOR: ServiceDescriptor = ServiceDescriptor {
    service: "pleg",
    version: "0.0.1",
    about: "an example",
    serves: &[Api {
        package: "polylet.pleg.v1",
        level: levels::PLEG,
    }],
    calls: &[Dependency {
        service: "pod-config",
        package: "polylet.podconfig.v1",
        level: levels::PODCONFIG,
    }],
    state_files: &[],
    subprocesses: &[],
};

fn main() -> ExitCode {
    polylet_kit::main(&DESCRIPTOR, |ctx: Ctx| async move {
        let mishap = std::env::var("MISHAP").unwrap_or_default();
        if mishap == "build" {
            return Err("there is no runtime".into());
        }
        let drain = ctx.drain();
        let drained = drain.clone();
        ctx.spawn("idler", async move {
            match mishap.as_str() {
                "panic" => panic!("on purpose"),
                "end" => {}
                _ => drain.cancelled().await,
            }
        });
        ctx.background("idle work", async move {
            drained.cancelled().await;
            tracing::debug!("idle work ended");
        });
        Ok(Service::new().on_drain(async { vec!["one thing".to_owned()] }))
    })
}
