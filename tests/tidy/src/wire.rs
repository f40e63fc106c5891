use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use prost_types::FileDescriptorSet;

/// Every .proto file below `proto/`, sorted.
///
/// # Errors
/// When a directory cannot be read.
pub fn proto_files(root: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut queue = vec![root.join("proto/polylet"), root.join("proto/runtime")];
    while let Some(dir) = queue.pop() {
        if !dir.exists() {
            continue;
        }
        for entry in fs::read_dir(dir)? {
            let path = entry?.path();
            if path.is_dir() {
                queue.push(path);
            } else if path.extension().is_some_and(|e| e == "proto") {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// The compiled descriptors of the whole wire.
///
/// # Errors
/// When a file does not compile.
pub fn descriptors(root: &Path) -> Result<FileDescriptorSet, Box<dyn Error>> {
    Ok(protox::compile(proto_files(root)?, [root.join("proto")])?)
}

/// Generates the Rust code of the wire into `out` and says how many files there are.
///
/// # Errors
/// When a .proto file does not compile or `out` cannot be written.
pub fn generate_into(root: &Path, out: &Path) -> Result<usize, Box<dyn Error>> {
    let set = descriptors(root)?;
    fs::create_dir_all(out)?;
    for old in fs::read_dir(out)? {
        fs::remove_file(old?.path())?;
    }
    tonic_prost_build::configure()
        .out_dir(out)
        .build_transport(false)
        .compile_fds(set)?;
    Ok(fs::read_dir(out)?.count())
}
