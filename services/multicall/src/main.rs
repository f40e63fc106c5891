//! The program that is shipped.

/// Records samples while a profile is taken.
#[global_allocator]
static ALLOCATOR: polylet_kit::SampledAllocator = polylet_kit::SampledAllocator;

fn main() -> std::process::ExitCode {
    polylet_multicall::main()
}
