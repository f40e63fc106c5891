//! The pod-config process.

/// Records samples while a profile is taken.
#[global_allocator]
static ALLOCATOR: polylet_kit::SampledAllocator = polylet_kit::SampledAllocator;

fn main() -> std::process::ExitCode {
    polylet_kit::main(&polylet_pod_config::DESCRIPTOR, polylet_pod_config::build)
}
