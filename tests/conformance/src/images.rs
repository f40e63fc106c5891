use std::fs;
use std::path::{Path, PathBuf};

use polylet_harness::error::file;
use polylet_harness::tar::Tar;
use polylet_harness::{HarnessError, image, machine, pki};
use serde_json::{Value, json};

use crate::suite::SuitePrograms;

/// The registry of the images that the suite's authors make. Others, such as one that needs a password,
/// must stay out of reach.
pub(crate) const REGISTRY: &str = "registry.k8s.io";

/// Specs of nodes ask busybox's `nmeter` for the time of day in milliseconds (`-d0 %3t`), and for nothing
/// else.
const NMETER: &str = r#"#!/bin/env bash
now=$EPOCHREALTIME
printf '%(%H:%M:%S)T.%s\n' "${now%.*}" "${now:${#now}-6:3}"
"#;

/// Tells the versions of an image from each other.
const VERSION_LABEL: &str = "org.opencontainers.image.ref.name";

const PAUSE: &str = "registry.k8s.io/pause:";

/// An image, not imported yet.
#[derive(Debug)]
pub(crate) struct SuiteImage {
    pub(crate) reference: String,
    pub(crate) archive: PathBuf,
}

/// Makes the images that the specs need of busybox, the suite's own programs, and a few of this machine.
/// Their archives are in `dir`.
///
/// # Errors
/// Fails if a program cannot be read or an archive cannot be written.
pub(crate) fn write(dir: &Path, suite: &SuitePrograms) -> Result<Vec<SuiteImage>, HarnessError> {
    let list = suite.images()?;
    let of_suite = |name: &str| named(&list, &format!("{REGISTRY}/e2e-test-images/{name}:"));
    let env = json!(["PATH=/usr/local/bin:/usr/bin:/bin"]);
    let shell = json!({ "Env": env, "Cmd": ["sh"] });
    let other_user = json!({ "Env": env, "Cmd": ["sh"], "User": "1234" });
    let privileges = json!({ "Env": env, "Cmd": ["nnp"] });
    let agnhost = json!({ "Env": env, "Entrypoint": ["/agnhost"], "Cmd": ["pause"] });
    let pause = json!({ "Env": env, "Entrypoint": ["/agnhost", "pause"] });
    let wanted: [(Vec<&str>, Value, Tar); 7] = [
        (of_suite("busybox"), shell.clone(), shell_files()?),
        (of_suite("glibc-dns-testing"), shell, Tar::default()),
        (of_suite("nonroot"), other_user, Tar::default()),
        (of_suite("nonewprivs"), privileges, privileges_files(suite)?),
        (of_suite("agnhost"), agnhost, agnhost_files(suite)?),
        // Of a web server, specs of nodes only need that it keeps running.
        (of_suite("nginx"), pause.clone(), pause_files(suite)?),
        (named(&list, PAUSE), pause, pause_files(suite)?),
    ];
    let mut images = Vec::new();
    for (references, mut config, files) in wanted {
        for reference in references {
            // An image of its own for each version: the runtime names an image by any of its tags.
            config["Labels"] = json!({ VERSION_LABEL: reference });
            let archive = image::write_with(dir, &[reference], &config, files.clone())?;
            let reference = reference.to_owned();
            images.push(SuiteImage { reference, archive });
        }
    }
    Ok(images)
}

/// The references of an image in all versions.
fn named<'a>(list: &'a [String], prefix: &str) -> Vec<&'a str> {
    let references = list.iter().filter(|image| image.starts_with(prefix));
    references.map(String::as_str).collect()
}

fn privileges_files(suite: &SuitePrograms) -> Result<Tar, HarnessError> {
    let mut tar = Tar::default();
    let program = read(&suite.no_new_privileges)?;
    tar.file("usr/local/bin/nnp", 0o6755, &program);
    Ok(tar)
}

/// Debian's busybox withholds environment variables from its children whose names are not those of shell
/// variables, which the suite's does not: what finds its shell by PATH gets bash. It also has no `nmeter`.
fn shell_files() -> Result<Tar, HarnessError> {
    let mut tar = Tar::default();
    with_libraries(&mut tar, "bash", "usr/local/bin/bash")?;
    tar.link("usr/local/bin/sh", "bash");
    tar.file("bin/nmeter", 0o755, NMETER.as_bytes());
    Ok(tar)
}

fn pause_files(suite: &SuitePrograms) -> Result<Tar, HarnessError> {
    let mut tar = Tar::default();
    tar.file("agnhost", 0o755, &read(&suite.agnhost)?);
    Ok(tar)
}

/// What specs use in containers of this image: the program under two names, bash, nc, curl, a directory
/// for uploads, a certificate for localhost, and a user with a group of its own.
fn agnhost_files(suite: &SuitePrograms) -> Result<Tar, HarnessError> {
    let mut tar = pause_files(suite)?;
    tar.link("agnhost-2", "agnhost");
    tar.dir("uploads/", 0o755);
    let (certificate, key) = pki::self_signed("localhost")?;
    tar.file("localhost.crt", 0o644, certificate.as_bytes());
    tar.file("localhost.key", 0o644, key.as_bytes());
    tar.file(
        "etc/passwd",
        0o644,
        b"root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n\
          user-defined-in-image:x:1000:1000::/:/bin/sh\n",
    );
    tar.file(
        "etc/group",
        0o644,
        b"root:x:0:\nnobody:x:65534:\nuser-defined-in-image:x:1000:\n\
          group-defined-in-image:x:50000:user-defined-in-image\n",
    );
    with_libraries(&mut tar, "bash", "bin/bash")?;
    // Debian's busybox prefers its own applets to programs, and its nc does not know UDP.
    tar.link("bin/sh", "bash");
    tar.file("bin/nmeter", 0o755, NMETER.as_bytes());
    with_libraries(&mut tar, "nc.openbsd", "bin/nc")?;
    with_libraries(&mut tar, "curl", "usr/bin/curl")?;
    Ok(tar)
}

/// Adds a program of this machine and its shared libraries.
fn with_libraries(tar: &mut Tar, name: &str, to: &str) -> Result<(), HarnessError> {
    let program = machine::program(name).ok_or_else(|| HarnessError::StillMissing {
        program: name.to_owned(),
        package: name.to_owned(),
    })?;
    tar.file(to, 0o755, &read(&program)?);
    let libraries = machine::run(Path::new("ldd"), &[&program.display().to_string()])?;
    for library in libraries.lines().filter_map(library) {
        let name = library.trim_start_matches('/');
        tar.file(name, 0o755, &read(Path::new(library))?);
    }
    Ok(())
}

/// The path of a shared library in a line of `ldd`.
fn library(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace();
    words.find(|word| word.starts_with('/'))
}

fn read(path: &Path) -> Result<Vec<u8>, HarnessError> {
    file("read", path, fs::read(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_of_a_program() {
        let found = library("\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)");
        assert_eq!(found, Some("/lib/x86_64-linux-gnu/libc.so.6"));
        let loader = library("\t/lib64/ld-linux-x86-64.so.2 (0x00007f)");
        assert_eq!(loader, Some("/lib64/ld-linux-x86-64.so.2"));
        assert_eq!(library("\tlinux-vdso.so.1 (0x00007ffd)"), None);
    }

    #[test]
    fn images_of_other_registries_are_not_made() {
        let list = [
            "registry.k8s.io/e2e-test-images/agnhost:2.55",
            "registry.k8s.io/e2e-test-images/agnhost:2.63.0",
            "registry.k8s.io/e2e-test-images/nonroot:1.5",
            "gcr.io/authenticated-image-pulling/agnhost:2.6",
        ]
        .map(str::to_owned);
        let found = named(&list, "registry.k8s.io/e2e-test-images/agnhost:");
        assert_eq!(found, [list[0].as_str(), list[1].as_str()]);
    }
}
