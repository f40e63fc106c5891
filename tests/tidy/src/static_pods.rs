use std::error::Error;
use std::path::Path;
use std::process::Command;

/// Where the kubelet's layout of pods and its uids of static pods are.
pub const DIRECTORY: &str = "services/pod-config/src/core/kubelet_uid";

/// The generated files below [`DIRECTORY`], by the flags of the Go program that writes them.
pub const FILES: [(&str, &str); 3] = [
    ("-types", "types.txt"),
    ("-filled", "tests/filled.txt"),
    ("-uids", "tests/uids.txt"),
];

/// Has the Go program `tests/controlplane/staticpods` write the files into a directory. It links the
/// kubelet's own code, so that the first build takes minutes.
pub fn generate_into(root: &Path, directory: &Path) -> Result<usize, Box<dyn Error>> {
    let mut go = Command::new("go");
    go.args(["run", "-trimpath", "-mod=readonly", "./staticpods"])
        .current_dir(root.join("tests/controlplane"))
        // As the harness builds the kubelet, which shares the compiled packages.
        .env("CGO_ENABLED", "1")
        .arg("-manifests")
        .arg(root.join(DIRECTORY).join("tests/manifests.yaml"));
    for (flag, name) in FILES {
        let path = directory.join(name);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        go.arg(flag).arg(path);
    }
    let output = go.output().map_err(|error| format!("go run: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    Ok(FILES.len())
}
