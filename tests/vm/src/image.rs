//! The image that machines boot from: Debian 13 with systemd, containerd and an NFS server, as
//! described in `tests/vm/image`; and the QEMU of the same release. Both are built once by mmdebstrap
//! from apt's configured mirror, and cached in the target directory until the description changes.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Instant;

use polylet_harness::cache::{self, Fingerprint};
use polylet_harness::error::file;
use polylet_harness::{HarnessError, machine, packages};
use tokio::process::Command;

use crate::error::VmError;

/// The Debian release of the image.
const SUITE: &str = "trixie";

/// Size of the root file system; the image file is sparse.
const SIZE: &str = "8G";

/// The package with QEMU. This machine's own may be of any age: version 7.2 corrupts the flags of
/// emulated processors, and kernels then panic at random.
const QEMU: &str = "qemu-system-x86";

/// A built image: a root file system, the kernel to boot it with, and QEMU.
#[derive(Debug, Clone)]
pub struct BaseImage {
    dir: PathBuf,
}

impl BaseImage {
    /// The cached image; built if necessary, which takes two minutes.
    ///
    /// # Errors
    /// Fails if programs are missing and cannot be installed, or the build fails.
    pub async fn ready(say: &dyn Fn(&str)) -> Result<Self, VmError> {
        machine::need_root()?;
        if machine::architecture()? != "amd64" {
            return Err(VmError::Architecture);
        }
        packages::install(&packages::missing_for_vm(), say)?;
        let dir = cache::dir("vm", &fingerprint()?);
        let image = Self { dir };
        if image.is_built() {
            return Ok(image);
        }
        let waiting = "waiting for another process to build the virtual machine's image";
        let _lock = cache::lock(&image.dir, &|| say(waiting)).await?;
        // The previous lock holder may have built it.
        if !image.is_built() {
            let begun = Instant::now();
            say("building the virtual machine's image with mmdebstrap, once (about 2 minutes)");
            image.build().await?;
            let seconds = begun.elapsed().as_secs();
            say(&format!("built the virtual machine's image in {seconds} s"));
        }
        Ok(image)
    }

    /// The root file system, not to be changed.
    pub fn disk(&self) -> PathBuf {
        self.dir.join("root.ext4")
    }

    /// The kernel.
    pub fn kernel(&self) -> PathBuf {
        self.dir.join("vmlinuz")
    }

    /// The kernel's initial file system.
    pub fn initrd(&self) -> PathBuf {
        self.dir.join("initrd.img")
    }

    /// A command that runs QEMU: with the libraries of its own release, not installed.
    pub(crate) fn qemu(&self) -> Vec<String> {
        let below = |path: &str| self.dir.join("qemu/usr").join(path).display().to_string();
        let mut command = vec![
            below("lib64/ld-linux-x86-64.so.2"),
            "--library-path".to_owned(),
            below("lib/x86_64-linux-gnu"),
            below("bin/qemu-system-x86_64"),
        ];
        for firmware in ["share/seabios", "share/qemu", "lib/ipxe/qemu"] {
            command.extend(["-L".to_owned(), below(firmware)]);
        }
        command
    }

    /// The disk is moved into place last.
    fn is_built(&self) -> bool {
        self.disk().is_file()
    }

    async fn build(&self) -> Result<(), VmError> {
        let qemu = self.dir.join("qemu");
        remove_tree(&qemu)?;
        // Unpacked only: what its packages would configure is for a system that runs.
        mmdebstrap("extract", QEMU, &[], &qemu).await?;
        let root = self.dir.join("rootfs");
        remove_tree(&root)?;
        let hook = format!(
            "--customize-hook={}",
            recipe().join("customize.sh").display()
        );
        mmdebstrap("minbase", &package_names()?, &[hook], &root).await?;
        for (prefix, to) in [("vmlinuz-", self.kernel()), ("initrd.img-", self.initrd())] {
            let from = boot_file(&root, prefix)?;
            file("copy", &from, fs::copy(&from, &to))?;
        }
        let unfinished = self.dir.join("root.part");
        make_file_system(&root, &unfinished, "root", SIZE)?;
        remove_tree(&root)?;
        let disk = self.disk();
        file("move", &disk, fs::rename(&unfinished, &disk))?;
        Ok(())
    }
}

/// Makes an ext4 file system with the content of a directory in a sparse file.
pub(crate) fn make_file_system(
    content: &Path,
    image: &Path,
    label: &str,
    size: &str,
) -> Result<(), VmError> {
    // Left by an interrupted build, if any.
    let _ = fs::remove_file(image);
    let mke2fs = program("mke2fs", "e2fsprogs")?;
    let (content, image) = (content.display().to_string(), image.display().to_string());
    // Nothing is left to be initialized in the background, which would be writes of the guest.
    let options = "lazy_itable_init=0,lazy_journal_init=0";
    let args = [
        "-q", "-F", "-t", "ext4", "-L", label, "-E", options, "-d", &content, &image, size,
    ];
    machine::run(&mke2fs, &args)?;
    Ok(())
}

pub(crate) fn program(name: &str, package: &str) -> Result<PathBuf, VmError> {
    let found = machine::program(name).ok_or_else(|| HarnessError::StillMissing {
        program: name.to_owned(),
        package: package.to_owned(),
    });
    Ok(found?)
}

/// The directory that describes the image.
fn recipe() -> PathBuf {
    machine::workspace().join("tests/vm/image")
}

/// The packages of the image, separated by commas.
fn package_names() -> Result<String, VmError> {
    let path = recipe().join("packages");
    let text = file("read", &path, fs::read_to_string(&path))?;
    let names = text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    Ok(names.collect::<Vec<_>>().join(","))
}

/// Creates a root directory with these packages.
async fn mmdebstrap(
    variant: &str,
    packages: &str,
    options: &[String],
    root: &Path,
) -> Result<(), VmError> {
    let mirror = packages::debian_mirror()?.ok_or(HarnessError::NoDebianMirror)?;
    let documentation = ["man", "locale", "doc"];
    let output = Command::new(program("mmdebstrap", "mmdebstrap")?)
        .args(["--quiet", "--mode=root"])
        .arg(format!("--variant={variant}"))
        .arg(format!("--include={packages}"))
        .args(options)
        .args(documentation.map(|dir| format!("--dpkgopt=path-exclude=/usr/share/{dir}/*")))
        .arg("--aptopt=Acquire::Languages \"none\"")
        .arg("--aptopt=Apt::Install-Recommends \"false\"")
        .arg(SUITE)
        .arg(root)
        .arg(mirror)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await;
    let run = |source| HarnessError::Run {
        program: "mmdebstrap".to_owned(),
        source,
    };
    let output = output.map_err(run)?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let last: Vec<&str> = text.lines().rev().take(30).collect();
    Err(VmError::Harness(HarnessError::Failed {
        program: "mmdebstrap".to_owned(),
        status: output.status.to_string(),
        output: last.into_iter().rev().collect::<Vec<_>>().join("\n"),
    }))
}

/// The only kernel's file with this prefix.
fn boot_file(root: &Path, prefix: &str) -> Result<PathBuf, VmError> {
    let dir = root.join("boot");
    let entries = file("read", &dir, fs::read_dir(&dir))?;
    let found = entries.flatten().map(|entry| entry.path()).find(|path| {
        path.file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with(prefix))
    });
    found.ok_or(VmError::NoKernel { dir })
}

fn remove_tree(dir: &Path) -> Result<(), VmError> {
    if !dir.exists() {
        return Ok(());
    }
    Ok(file("remove", dir, fs::remove_dir_all(dir))?)
}

/// Of all files of the description, with their names and modes.
fn fingerprint() -> Result<Fingerprint, VmError> {
    let mut inputs = Fingerprint::default();
    for constant in [SUITE, SIZE, QEMU] {
        inputs.add(constant.as_bytes());
    }
    let recipe = recipe();
    let mut queue = vec![recipe.clone()];
    let mut paths = Vec::new();
    while let Some(path) = queue.pop() {
        if path.is_dir() {
            let entries = file("read", &path, fs::read_dir(&path))?;
            queue.extend(entries.flatten().map(|entry| entry.path()));
        } else {
            paths.push(path);
        }
    }
    paths.sort();
    for path in paths {
        let executable = file("read", &path, fs::metadata(&path))?
            .permissions()
            .mode()
            & 0o111;
        inputs.add(
            path.strip_prefix(&recipe)
                .unwrap_or(&path)
                .as_os_str()
                .as_encoded_bytes(),
        );
        inputs.add(&executable.to_le_bytes());
        inputs.add(&file("read", &path, fs::read(&path))?);
    }
    Ok(inputs)
}
