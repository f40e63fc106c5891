use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use polylet_harness::error::file;
use polylet_harness::{image, node};

use crate::error::VmError;
use crate::image::make_file_system;

/// Where the disk of programs is mounted in the machine.
pub const PROGRAMS: &str = "/programs";

/// Room for the file system itself: MiB, and a part of the files' size, as its tables grow with them.
const OVERHEAD: u64 = 32;
const OVERHEAD_PART: u64 = 16;

/// Content of the read-only disk of programs.
#[derive(Debug, Clone)]
pub struct ProgramSet {
    /// The agent's program.
    pub agent: PathBuf,
    /// Directory of the services' programs.
    pub node: PathBuf,
    /// Other files, placed in the root directory.
    pub others: Vec<PathBuf>,
}

impl ProgramSet {
    /// The services as in other tests ([`node::default_bin_dir`]), with this agent.
    pub fn new(agent: &Path) -> Self {
        Self {
            agent: agent.to_owned(),
            node: node::default_bin_dir(),
            others: Vec::new(),
        }
    }
}

/// Builds the disk `image`: the agent, other files, `node/` with the services and `images/`
/// with the archives of the test images. `work` is a directory for its content.
pub(crate) fn make_disk(set: &ProgramSet, work: &Path, image: &Path) -> Result<(), VmError> {
    if !set.node.join("polylet").is_file() {
        return Err(VmError::Programs {
            path: set.node.clone(),
            why: "no program `polylet` in it",
        });
    }
    let (services, images) = (work.join("node"), work.join("images"));
    for dir in [&services, &images] {
        file("make", dir, fs::create_dir_all(dir))?;
    }
    let agent = work.join("polylet-vm-agent");
    file("copy", &agent, fs::copy(&set.agent, &agent))?;
    copy_programs(&set.node, &services)?;
    for other in &set.others {
        let name = other.file_name().unwrap_or_default();
        file("copy", other, fs::copy(other, work.join(name)))?;
    }
    image::write_all(&images)?;
    let files = size_of(work)?;
    let size = (files + files / OVERHEAD_PART) / (1 << 20) + OVERHEAD;
    make_file_system(work, image, "programs", &format!("{size}M"))?;
    Ok(file("remove", work, fs::remove_dir_all(work))?)
}

/// Copies the programs of a directory; names of the same file become links.
fn copy_programs(from: &Path, to: &Path) -> Result<(), VmError> {
    let mut copied: HashMap<(u64, u64), PathBuf> = HashMap::new();
    let entries = file("read", from, fs::read_dir(from))?;
    let mut names: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
    names.sort();
    for name in names {
        if !name.to_string_lossy().starts_with("polylet") {
            continue;
        }
        let (source, target) = (from.join(&name), to.join(&name));
        let metadata = file("read", &source, fs::metadata(&source))?;
        let is_program = metadata.is_file() && metadata.mode() & 0o111 != 0;
        if !is_program {
            continue;
        }
        let identity = (metadata.dev(), metadata.ino());
        if let Some(first) = copied.get(&identity) {
            file("link", &target, fs::hard_link(first, &target))?;
        } else {
            file("copy", &target, fs::copy(&source, &target))?;
            copied.insert(identity, target);
        }
    }
    Ok(())
}

/// Bytes of all files below a directory.
fn size_of(dir: &Path) -> Result<u64, VmError> {
    let mut total = 0;
    let mut queue = vec![dir.to_owned()];
    while let Some(dir) = queue.pop() {
        for entry in file("read", &dir, fs::read_dir(&dir))?.flatten() {
            let metadata = file("read", entry.path(), entry.metadata())?;
            match metadata.is_dir() {
                true => queue.push(entry.path()),
                // Each link counts: too much is no harm.
                false => total += metadata.len() / metadata.nlink().max(1),
            }
        }
    }
    Ok(total)
}
