use std::collections::VecDeque;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::{HarnessError, file};
use crate::machine;

/// A required program and its Debian package.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Need {
    /// Name of the Debian package.
    pub package: &'static str,
    /// Name of the program.
    pub program: &'static str,
    /// Purpose, for messages.
    pub why: &'static str,
}

/// A program with the check whether it is there.
type NeedCheck = (Need, fn() -> bool);

const BUSYBOX: NeedCheck = (
    Need {
        package: "busybox-static",
        program: "a static busybox",
        why: "content of the images",
    },
    || machine::static_busybox().is_some(),
);

const NEEDS: [NeedCheck; 5] = [
    (
        Need {
            package: "containerd",
            program: "containerd",
            why: "the container runtime",
        },
        || {
            ["containerd", "containerd-shim-runc-v2", "ctr"]
                .iter()
                .all(|name| on_path(name))
        },
    ),
    (
        Need {
            package: "runc",
            program: "runc",
            why: "starts containers",
        },
        || on_path("runc"),
    ),
    (
        Need {
            package: "containernetworking-plugins",
            program: "CNI plugins",
            why: "the pods' network",
        },
        || machine::cni_plugins().is_some(),
    ),
    BUSYBOX,
    (
        Need {
            package: "iptables",
            program: "iptables",
            why: "host ports of pods",
        },
        || on_path("iptables"),
    ),
];

/// Programs that build the engine of the fuzz targets.
const FUZZ_NEEDS: [NeedCheck; 1] = [(
    Need {
        package: "g++",
        program: "g++",
        why: "compiles the fuzz engine",
    },
    || on_path("g++"),
)];

/// Programs in the images of Kubernetes' own test suites.
const SUITE_NEEDS: [NeedCheck; 2] = [
    (
        Need {
            package: "curl",
            program: "curl",
            why: "in the images of the test suites",
        },
        || on_path("curl"),
    ),
    (
        Need {
            package: "netcat-openbsd",
            program: "nc.openbsd",
            why: "in the images of the test suites",
        },
        || on_path("nc.openbsd"),
    ),
];

/// Programs that build a virtual machine, and the images of its pods.
const VM_NEEDS: [NeedCheck; 3] = [
    BUSYBOX,
    (
        Need {
            package: "mmdebstrap",
            program: "mmdebstrap",
            why: "builds the virtual machine's image",
        },
        || on_path("mmdebstrap"),
    ),
    (
        Need {
            package: "e2fsprogs",
            program: "mke2fs",
            why: "makes the virtual machine's disks",
        },
        || on_path("mke2fs"),
    ),
];

fn on_path(name: &str) -> bool {
    machine::program(name).is_some()
}

/// Missing programs. Installed ones are used regardless of their origin.
pub fn missing() -> Vec<Need> {
    missing_of(&NEEDS)
}

/// Missing programs of a virtual machine.
pub fn missing_for_vm() -> Vec<Need> {
    missing_of(&VM_NEEDS)
}

/// Missing programs of the images of Kubernetes' own test suites.
pub fn missing_for_suites() -> Vec<Need> {
    missing_of(&SUITE_NEEDS)
}

/// Missing programs that the engine of the fuzz targets is built with.
pub fn missing_for_fuzzing() -> Vec<Need> {
    missing_of(&FUZZ_NEEDS)
}

fn missing_of(needs: &[NeedCheck]) -> Vec<Need> {
    needs
        .iter()
        .filter(|(_, there)| !there())
        .map(|(need, _)| *need)
        .collect()
}

/// Installs the packages of `needs`; `say` receives each step.
///
/// # Errors
/// Fails if this is not root, apt is missing, or apt fails. Packages are never removed.
pub fn install(needs: &[Need], say: &dyn Fn(&str)) -> Result<(), HarnessError> {
    if needs.is_empty() {
        return Ok(());
    }
    machine::need_root()?;
    let names: Vec<&str> = needs.iter().map(|need| need.package).collect();
    if machine::program("apt-get").is_none() {
        return Err(HarnessError::NoApt {
            missing: names.join(", "),
        });
    }
    let here = Path::new("/");
    apt_get(&["update".to_owned()], "update", here, say)?;
    let mut args: Vec<String> = ["install", "--yes", "--no-install-recommends", "--no-remove"]
        .map(str::to_owned)
        .into();
    args.extend(names.iter().map(|name| (*name).to_owned()));
    apt_get(&args, &format!("install {}", names.join(" ")), here, say)?;
    let mut still_missing = missing().into_iter().chain(missing_for_vm());
    match still_missing.find(|need| needs.contains(need)) {
        None => Ok(()),
        Some(need) => Err(HarnessError::StillMissing {
            program: need.program.to_owned(),
            package: need.package.to_owned(),
        }),
    }
}

/// Runs apt-get in `dir`; its lines are passed to `say`, the last ones are part of the error.
pub(crate) fn apt_get(
    args: &[String],
    what: &str,
    dir: &Path,
    say: &dyn Fn(&str),
) -> Result<(), HarnessError> {
    let run = |source| HarnessError::Run {
        program: "apt-get".to_owned(),
        source,
    };
    // One pipe for both streams preserves the order of the lines.
    let (reader, writer) = std::io::pipe().map_err(run)?;
    let mut command = Command::new("apt-get");
    command
        .args(["-q", "-o", "Dpkg::Use-Pty=0"])
        .args(args)
        .current_dir(dir);
    command
        .env("DEBIAN_FRONTEND", "noninteractive")
        .env("LC_ALL", "C")
        .stdin(Stdio::null());
    command
        .stdout(writer.try_clone().map_err(run)?)
        .stderr(writer);
    let mut child = command.spawn().map_err(run)?;
    // Closes our copies of the write end, so that the reader sees end of file.
    drop(command);
    let mut last = VecDeque::new();
    for line in BufReader::new(reader).lines().map_while(Result::ok) {
        if worth_telling(&line) {
            say(&line);
        }
        last.push_back(line);
        if last.len() > 6 {
            last.pop_front();
        }
    }
    let status = child.wait().map_err(run)?;
    if status.success() {
        return Ok(());
    }
    let tail: Vec<String> = last.into();
    Err(HarnessError::Apt {
        what: what.to_owned(),
        status: status.to_string(),
        tail: tail.join(" | "),
    })
}

fn worth_telling(line: &str) -> bool {
    ["Get:", "Unpacking", "Setting up", "Err:", "E:"]
        .iter()
        .any(|start| line.starts_with(start))
}

/// A program from a Debian package that is unpacked into the build directory instead of installed,
/// because an installation might start a service. Downloaded on first use.
///
/// # Errors
/// Fails if apt is missing or cannot download the package.
pub(crate) fn aside(package: &str, program: &str) -> Result<PathBuf, HarnessError> {
    let home = machine::target_dir().join("testbed").join(package);
    let target = home.join(program);
    if target.is_file() {
        return Ok(target);
    }
    if machine::program("apt-get").is_none() {
        return Err(HarnessError::NoApt {
            missing: package.to_owned(),
        });
    }
    let parent = home.parent().unwrap_or(&home);
    file("make", parent, fs::create_dir_all(parent))?;
    let work = file("make", parent, tempfile::tempdir_in(parent))?;
    download(package, work.path())?;
    unpack(work.path())?;
    file("make", &home, fs::create_dir_all(&home))?;
    let from = work.path().join("x/usr/bin").join(program);
    file("move", &target, fs::rename(&from, &target))?;
    Ok(target)
}

/// Downloads a package into `work`.
pub(crate) fn download(package: &str, work: &Path) -> Result<(), HarnessError> {
    let download = ["download".to_owned(), package.to_owned()];
    let what = format!("download {package}");
    if apt_get(&download, &what, work, &|_| {}).is_err() {
        // Outdated package lists refer to removed files.
        apt_get(&["update".to_owned()], "update", work, &|_| {})?;
        apt_get(&download, &what, work, &|_| {})?;
    }
    Ok(())
}

/// Unpacks the only package in `work` into its directory `x`.
pub(crate) fn unpack(work: &Path) -> Result<(), HarnessError> {
    let entries = file("read", work, fs::read_dir(work))?;
    let package = entries
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|end| end == "deb"))
        .ok_or(HarnessError::NoDebianMirror)?;
    let target = work.join("x");
    machine::run(
        Path::new("dpkg"),
        &[
            "-x",
            &package.display().to_string(),
            &target.display().to_string(),
        ],
    )?;
    Ok(())
}

/// URL of the configured Debian mirror.
///
/// # Errors
/// Fails if apt cannot be asked.
pub fn debian_mirror() -> Result<Option<String>, HarnessError> {
    let format = "$(ORIGIN) $(COMPONENT) $(REPO_URI)";
    let text = machine::run(
        Path::new("apt-get"),
        &["indextargets", "--format", format, "Identifier: Packages"],
    )?;
    let mirrors = text
        .lines()
        .filter_map(|line| line.strip_prefix("Debian main "));
    // The security archive has no full suites.
    Ok(mirrors
        .filter(|uri| !uri.contains("security"))
        .map(str::to_owned)
        .next())
}
