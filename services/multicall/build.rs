//! Linker options of the multicall binary.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // At a fixed address: relocated tables would be private to each process, half a MiB each. Libraries,
    // heap and stacks are still placed at random. Go programs such as the kubelet are linked like this,
    // too.
    println!("cargo::rustc-link-arg-bins=-no-pie");
    // `cargo package-deb -- --bolt` moves code after the link, and has to find what refers to it.
    println!("cargo::rerun-if-env-changed=POLYLET_EMIT_RELOCS");
    if std::env::var_os("POLYLET_EMIT_RELOCS").is_some() {
        println!("cargo::rustc-link-arg-bins=-Wl,--emit-relocs");
    }
}
