//! Entry point of the service.

/// Records samples while a profile is taken.
#[global_allocator]
static ALLOCATOR: polylet_kit::SampledAllocator = polylet_kit::SampledAllocator;

fn main() -> std::process::ExitCode {
    polylet_kit::main(&polylet_node_api::DESCRIPTOR, polylet_node_api::build)
}
