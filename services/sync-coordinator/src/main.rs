//! The sync-coordinator process; everything else is in the library.

/// Records samples while a profile is taken.
#[global_allocator]
static ALLOCATOR: polylet_kit::SampledAllocator = polylet_kit::SampledAllocator;

fn main() -> std::process::ExitCode {
    polylet_kit::main(
        &polylet_sync_coordinator::DESCRIPTOR,
        polylet_sync_coordinator::build,
    )
}
