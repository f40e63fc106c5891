//! Entry point of the service.

/// Records samples while a profile is taken.
#[global_allocator]
static ALLOCATOR: polylet_kit::SampledAllocator = polylet_kit::SampledAllocator;

fn main() -> std::process::ExitCode {
    polylet_kit::main(
        &polylet_status_reporter::DESCRIPTOR,
        polylet_status_reporter::build,
    )
}
