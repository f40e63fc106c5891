//! The process; everything is in the library.

/// Records samples while a profile is taken.
#[global_allocator]
static ALLOCATOR: polylet_kit::SampledAllocator = polylet_kit::SampledAllocator;

fn main() -> std::process::ExitCode {
    polylet_kit::main(
        &polylet_device_manager::DESCRIPTOR,
        polylet_device_manager::build,
    )
}
