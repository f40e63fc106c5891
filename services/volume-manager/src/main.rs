//! The volume manager's process.

/// Records samples while a profile is taken.
#[global_allocator]
static ALLOCATOR: polylet_kit::SampledAllocator = polylet_kit::SampledAllocator;

fn main() -> std::process::ExitCode {
    polylet_kit::main(
        &polylet_volume_manager::DESCRIPTOR,
        polylet_volume_manager::build,
    )
}
