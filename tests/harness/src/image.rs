use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{HarnessError, file};
use crate::machine;
use crate::tar::Tar;

/// Reference of the test and demo image: busybox with all its applets.
pub const TEST: &str = "docker.io/library/polylet-test:1";

/// Reference of the pod sandbox image.
pub const PAUSE: &str = "docker.io/library/polylet-pause:1";

/// Reaps orphans adopted by process 1 of the pod and exits on SIGTERM.
const PAUSE_SCRIPT: &str = "trap 'exit 0' TERM INT; while :; do sleep 2147483647 & wait $!; done";

/// Writes one archive per image into `dir` and returns their paths.
///
/// # Errors
/// Fails if there is no static busybox or a file cannot be written.
pub fn write_all(dir: &Path) -> Result<Vec<PathBuf>, HarnessError> {
    let test = serde_json::json!({
        "Env": ["PATH=/bin"], "Cmd": ["/bin/sh"], "WorkingDir": "/",
    });
    let pause = serde_json::json!({
        "Env": ["PATH=/bin"], "Entrypoint": ["/bin/sh", "-c", PAUSE_SCRIPT],
    });
    Ok(vec![write(dir, TEST, &test)?, write(dir, PAUSE, &pause)?])
}

/// Writes a busybox image named `reference`; `config` is the `config` object of the image
/// configuration.
///
/// # Errors
/// See [`write_all`].
pub fn write(
    dir: &Path,
    reference: &str,
    config: &serde_json::Value,
) -> Result<PathBuf, HarnessError> {
    write_sized(dir, reference, config, 0)
}

/// Like [`write()`], with additional bytes that no other image shares.
///
/// # Errors
/// See [`write_all`].
pub fn write_sized(
    dir: &Path,
    reference: &str,
    config: &serde_json::Value,
    more: usize,
) -> Result<PathBuf, HarnessError> {
    write_layers(dir, &[reference], config, &[base_layer(reference, more)?])
}

/// Writes an image of busybox and the files of `own`, under all names of `references`.
///
/// # Errors
/// See [`write_all`].
pub fn write_with(
    dir: &Path,
    references: &[&str],
    config: &serde_json::Value,
    own: Tar,
) -> Result<PathBuf, HarnessError> {
    let layers = [base_layer("", 0)?, own.finish()];
    write_layers(dir, references, config, &layers)
}

fn write_layers(
    dir: &Path,
    references: &[&str],
    config: &serde_json::Value,
    layers: &[Vec<u8>],
) -> Result<PathBuf, HarnessError> {
    let mut digests = Vec::new();
    for layer in layers {
        digests.push(format!("sha256:{}", sha256(dir, layer)?));
    }
    let config = serde_json::json!({
        "architecture": machine::architecture()?,
        "os": "linux",
        "config": config,
        "rootfs": { "type": "layers", "diff_ids": digests },
    });
    let names: Vec<String> = (0..layers.len())
        .map(|n| format!("layer-{n}.tar"))
        .collect();
    let manifest = serde_json::json!([
        { "Config": "config.json", "RepoTags": references, "Layers": names }
    ]);
    let mut archive = Tar::default();
    archive.file("manifest.json", 0o644, manifest.to_string().as_bytes());
    archive.file("config.json", 0o644, config.to_string().as_bytes());
    for (name, layer) in names.iter().zip(layers) {
        archive.file(name, 0o644, layer);
    }
    let name: String = references
        .concat()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect();
    let path = dir.join(format!("{name}.tar"));
    file("write", &path, fs::write(&path, archive.finish()))?;
    Ok(path)
}

/// The first layer: busybox, a link for each of its applets, the customary directories, and a file
/// of `more` unique bytes.
fn base_layer(reference: &str, more: usize) -> Result<Vec<u8>, HarnessError> {
    let busybox = machine::static_busybox().ok_or_else(|| HarnessError::NotStatic {
        path: PathBuf::from("busybox"),
    })?;
    let program = file("read", &busybox, fs::read(&busybox))?;
    let mut tar = Tar::default();
    for dir in ["bin/", "dev/", "etc/", "proc/", "sys/", "var/", "www/"] {
        tar.dir(dir, 0o755);
    }
    tar.dir("tmp/", 0o1777);
    tar.file("bin/busybox", 0o755, &program);
    for applet in machine::run(&busybox, &["--list"])?
        .lines()
        .filter(|name| *name != "busybox")
    {
        tar.link(&format!("bin/{applet}"), "busybox");
    }
    if more > 0 {
        let own: Vec<u8> = reference.bytes().cycle().take(more).collect();
        tar.file("own", 0o644, &own);
    }
    let passwd = "root:x:0:0:root:/:/bin/sh\nuser:x:1000:1000:user:/:/bin/sh\n\
                  nobody:x:65534:65534:nobody:/:/bin/false\n";
    tar.file("etc/passwd", 0o644, passwd.as_bytes());
    tar.file(
        "etc/group",
        0o644,
        b"root:x:0:\nuser:x:1000:\nnobody:x:65534:\n",
    );
    Ok(tar.finish())
}

/// Computed by busybox, which saves a dependency.
fn sha256(dir: &Path, bytes: &[u8]) -> Result<String, HarnessError> {
    let path = dir.join("layer.tmp");
    file("write", &path, fs::write(&path, bytes))?;
    let busybox = machine::static_busybox().ok_or_else(|| HarnessError::NotStatic {
        path: PathBuf::from("busybox"),
    })?;
    let line = machine::run(&busybox, &["sha256sum", &path.display().to_string()])?;
    file("remove", &path, fs::remove_file(&path))?;
    Ok(line
        .split_whitespace()
        .next()
        .unwrap_or_default()
        .to_owned())
}
