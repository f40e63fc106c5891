use std::fs;
use std::path::{Path, PathBuf};

use crate::containerd::v2;
use crate::error::{HarnessError, file};
use crate::{machine, packages};

/// The Debian release of the base image.
const BASE_RELEASE: &str = "trixie";

/// Docker's programs, unpacked from Debian's packages and not installed.
#[derive(Debug, Clone)]
pub(super) struct DockerPrograms {
    pub(super) dockerd: PathBuf,
    pub(super) docker: PathBuf,
    /// Compose, run without `docker`.
    pub(super) compose: PathBuf,
}

impl DockerPrograms {
    pub(super) fn fetch(say: &dyn Fn(&str)) -> Result<Self, HarnessError> {
        let home = home()?;
        let engine = home.join("docker.io");
        let this = Self {
            dockerd: engine.join("usr/sbin/dockerd"),
            docker: engine.join("usr/bin/docker"),
            compose: home.join("docker-compose/usr/libexec/docker/cli-plugins/docker-compose"),
        };
        if !this.dockerd.is_file() {
            say("fetching Docker from Debian (36 MB, not installed)");
            unpack("docker.io", &engine, false)?;
        }
        if !this.docker.is_file() {
            // A package of its own since Debian 13.
            let client = home.join("docker-cli");
            unpack("docker-cli", &client, false)?;
            let from = client.join("usr/bin/docker");
            file("move", &this.docker, fs::rename(from, &this.docker))?;
        }
        if !this.compose.is_file() {
            say("fetching Compose from Debian's unstable suite (14 MB, not installed)");
            unpack("docker-compose", &home.join("docker-compose"), true)?;
        }
        Ok(this)
    }
}

/// The archive of a minimal Debian, which stands in for the base image of the same release.
pub(super) fn base_image(say: &dyn Fn(&str)) -> Result<PathBuf, HarnessError> {
    let archive = home()?.join(format!("debian-{BASE_RELEASE}.tar"));
    if archive.is_file() {
        return Ok(archive);
    }
    say("building the base image with mmdebstrap, once (about a minute)");
    packages::install(&packages::missing_for_vm(), say)?;
    let mirror = packages::debian_mirror()?.ok_or(HarnessError::NoDebianMirror)?;
    let keyring = "/usr/share/keyrings/debian-archive-keyring.gpg";
    let source = format!("deb [signed-by={keyring}] {mirror} {BASE_RELEASE} main");
    let part = archive.with_extension("part.tar");
    let path = part.display().to_string();
    let options = ["--quiet", "--mode=root", "--variant=minbase"];
    let args = [&options[..], &[BASE_RELEASE, &path, &source]].concat();
    machine::run(Path::new("mmdebstrap"), &args)?;
    file("move", &archive, fs::rename(&part, &archive))?;
    Ok(archive)
}

/// The directory of what is fetched and built once.
fn home() -> Result<PathBuf, HarnessError> {
    let home = machine::target_dir().join("testbed/docker");
    file("make", &home, fs::create_dir_all(&home))?;
    Ok(home)
}

/// Unpacks a package into a directory of its own, from the unstable suite or from the installed one.
fn unpack(package: &str, to: &Path, is_unstable: bool) -> Result<(), HarnessError> {
    let parent = to.parent().unwrap_or(to);
    let work = file("make", parent, tempfile::tempdir_in(parent))?;
    if is_unstable {
        let options = v2::own_lists(work.path())?;
        v2::apt(&options, &["update"], work.path())?;
        v2::apt(&options, &["download", package], work.path())?;
    } else {
        packages::download(package, work.path())?;
    }
    packages::unpack(work.path())?;
    // May remain from an interrupted run.
    let _ = fs::remove_dir_all(to);
    file("move", to, fs::rename(work.path().join("x"), to))?;
    Ok(())
}
