use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{HarnessError, file};
use crate::machine;
use crate::packages;

/// The Debian suite with containerd 2.x; its binaries also run on older releases.
const SUITE: &str = "sid";

const PROGRAMS: [&str; 3] = ["containerd", "containerd-shim-runc-v2", "ctr"];

/// Path of the containerd 2.x binary, unpacked from a Debian package into the build directory.
/// Installed packages and apt's own lists are not changed.
pub(crate) fn fetch(say: &dyn Fn(&str)) -> Result<PathBuf, HarnessError> {
    let home = machine::target_dir().join("testbed/containerd-2");
    let program = home.join("containerd");
    if PROGRAMS.iter().all(|name| home.join(name).is_file()) {
        return Ok(program);
    }
    say("fetching containerd 2.x from Debian's unstable suite (30 MB, not installed)");
    let parent = home.parent().unwrap_or(&home);
    file("make", parent, fs::create_dir_all(parent))?;
    let work = file("make", parent, tempfile::tempdir_in(parent))?;
    let options = own_lists(work.path())?;
    apt(&options, &["update"], work.path())?;
    apt(&options, &["download", "containerd"], work.path())?;
    packages::unpack(work.path())?;
    let bin = work.path().join("x/usr/bin");
    machine::run(&bin.join("containerd"), &["--version"])?;
    file("make", &home, fs::create_dir_all(&home))?;
    for name in PROGRAMS {
        let (from, to) = (bin.join(name), home.join(name));
        file("move", &to, fs::rename(&from, &to))?;
    }
    Ok(program)
}

/// A separate sources list, list directory and cache, with the mirror configured for apt.
pub(crate) fn own_lists(work: &Path) -> Result<Vec<String>, HarnessError> {
    let mirror = packages::debian_mirror()?.ok_or(HarnessError::NoDebianMirror)?;
    for dir in ["lists/partial", "cache/archives/partial"] {
        let path = work.join(dir);
        file("make", &path, fs::create_dir_all(&path))?;
    }
    let keyring = Path::new("/usr/share/keyrings/debian-archive-keyring.gpg");
    let signed = if keyring.exists() {
        format!("[signed-by={}] ", keyring.display())
    } else {
        String::new()
    };
    let list = work.join("sources.list");
    file(
        "write",
        &list,
        fs::write(&list, format!("deb {signed}{mirror} {SUITE} main\n")),
    )?;
    let dir = work.display();
    Ok(vec![
        format!("Dir::Etc::sourcelist={dir}/sources.list"),
        "Dir::Etc::sourceparts=/dev/null".to_owned(),
        format!("Dir::State::lists={dir}/lists"),
        "Dir::State::status=/dev/null".to_owned(),
        format!("Dir::Cache={dir}/cache"),
        "APT::Sandbox::User=root".to_owned(),
        "Acquire::Languages=none".to_owned(),
        "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false".to_owned(),
    ])
}

pub(crate) fn apt(options: &[String], what: &[&str], work: &Path) -> Result<(), HarnessError> {
    let mut args = Vec::new();
    for option in options {
        args.extend(["-o".to_owned(), option.clone()]);
    }
    args.extend(what.iter().map(|word| (*word).to_owned()));
    packages::apt_get(&args, &what.join(" "), work, &|_| {})
}
