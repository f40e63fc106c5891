//! Writes `proto/src/gen` anew from the .proto files: `cargo generate`.

fn main() {
    let root = polylet_tidy::root();
    match polylet_tidy::wire::generate_into(&root, &root.join("proto/src/gen")) {
        Ok(files) => println!("wrote {files} files under proto/src/gen"),
        Err(error) => {
            eprintln!("cannot generate: {error}");
            std::process::exit(1);
        }
    }
}
