//! Linker options of the multicall binary.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // At a fixed address: relocated tables would be private to each process, half a MiB each. Libraries,
    // heap and stacks are still placed at random. Go programs such as the kubelet are linked like this,
    // too.
    println!("cargo::rustc-link-arg-bins=-no-pie");
}
