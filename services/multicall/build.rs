//! How the one file is linked.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // At a fixed place: the tables of addresses in it then are the same in every process, and shared
    // as the rest of the file is. Moved about, each process would write its own, half a MiB.
    // Libraries, heap and stacks are still placed at random. Go's programs, the kubelet among them,
    // are linked like this too.
    println!("cargo::rustc-link-arg-bins=-no-pie");
}
