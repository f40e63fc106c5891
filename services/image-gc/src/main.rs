//! The process; everything is in the library.
fn main() -> std::process::ExitCode {
    polylet_kit::main(&polylet_image_gc::DESCRIPTOR, polylet_image_gc::build)
}
