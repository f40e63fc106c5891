//! Entry point of the command `polylet`.

/// Records samples while a profile is taken.
#[global_allocator]
static ALLOCATOR: polylet_kit::SampledAllocator = polylet_kit::SampledAllocator;

fn main() -> std::process::ExitCode {
    polylet_supervisor::main()
}
