use std::fs;
use std::path::Path;

/// The kernel's id of the boot, below the root directory.
const BOOT_ID: &str = "proc/sys/kernel/random/boot_id";

/// The kernel's id of this boot; `None` if it cannot be read.
pub fn boot_id() -> Option<String> {
    let id = fs::read_to_string(Path::new("/").join(BOOT_ID)).ok()?;
    Some(id.trim().to_owned()).filter(|id| !id.is_empty())
}

/// The kernel's release: `uname -r`.
pub fn kernel_version() -> String {
    let system = rustix::system::uname();
    system.release().to_string_lossy().into_owned()
}

/// Fields of a Node's `nodeInfo` that identify machine and system. What cannot be read is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Id of the installation: `/etc/machine-id`.
    pub machine_id: String,
    /// Id of the hardware from its firmware, or the machine id.
    pub system_uuid: String,
    /// Id of the boot.
    pub boot_id: String,
    /// Kernel release: `uname -r`.
    pub kernel_version: String,
    /// `PRETTY_NAME` of `os-release`.
    pub os_image: String,
}

impl Identity {
    /// Reads the system.
    pub fn read() -> Identity {
        Identity::read_below(Path::new("/"))
    }

    fn read_below(root: &Path) -> Identity {
        let first = |paths: &[&str]| {
            let texts = paths
                .iter()
                .filter_map(|path| fs::read_to_string(root.join(path)).ok());
            let mut values = texts.map(|text| text.trim_matches(['\n', '\0', ' ']).to_owned());
            values.find(|value| !value.is_empty()).unwrap_or_default()
        };
        let machine_id = first(&["etc/machine-id", "var/lib/dbus/machine-id"]);
        let firmware = [
            "sys/class/dmi/id/product_uuid",
            "proc/device-tree/system-id",
            "proc/device-tree/vm,uuid",
        ];
        let firmware = first(&firmware);
        let release = ["etc/os-release", "usr/lib/os-release"].map(|path| root.join(path));
        let release = release
            .iter()
            .find_map(|path| fs::read_to_string(path).ok());
        Identity {
            system_uuid: if firmware.is_empty() {
                machine_id.clone()
            } else {
                firmware
            },
            machine_id,
            boot_id: first(&[BOOT_ID]),
            kernel_version: kernel_version(),
            os_image: pretty_name(&release.unwrap_or_default()),
        }
    }
}

fn pretty_name(release: &str) -> String {
    let mut lines = release.lines();
    let name = lines.find_map(|line| line.strip_prefix("PRETTY_NAME="));
    let name = name.unwrap_or("Linux").trim_matches(['"', '\'']);
    name.to_owned()
}

/// The machine's architecture, as Go (and so the API) names it.
pub fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        "powerpc64" => "ppc64le",
        "loongarch64" => "loong64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_identity_files() {
        let dir = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("etc/machine-id", "0123\n");
        put("proc/sys/kernel/random/boot_id", "boot-1\n");
        put("etc/os-release", "NAME=x\nPRETTY_NAME=\"Some Linux 1\"\n");
        let found = Identity::read_below(dir.path());
        assert_eq!(found.machine_id, "0123");
        // Without an id in the firmware.
        assert_eq!(found.system_uuid, "0123");
        assert_eq!(
            (found.boot_id.as_str(), found.os_image.as_str()),
            ("boot-1", "Some Linux 1")
        );
        put("sys/class/dmi/id/product_uuid", "uuid-1\n");
        assert_eq!(Identity::read_below(dir.path()).system_uuid, "uuid-1");
    }
}
