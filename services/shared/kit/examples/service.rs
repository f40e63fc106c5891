//! The least service there can be, and what can go wrong with one: `MISHAP` in the environment
//! says what its task does.

use std::process::ExitCode;

use polylet_kit::{Api, Call, Ctx, Manifest, Service};

static MANIFEST: Manifest = Manifest {
    service: "pleg",
    version: "0.0.1",
    about: "an example",
    serves: &[Api {
        package: "polylet.pleg.v1",
        level: 1,
    }],
    calls: &[Call {
        service: "pod-config",
        package: "polylet.podconfig.v1",
        level: 1,
    }],
    keeps: &[],
};

fn main() -> ExitCode {
    polylet_kit::main(&MANIFEST, |ctx: Ctx| async move {
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
        ctx.background("farewell", async move { drained.cancelled().await });
        Ok(Service::new().on_drain(async { vec!["one thing".to_owned()] }))
    })
}
