//! What a program says of itself with `--descriptor`.

use serde::Deserialize;

/// The descriptor of a program. Fields that this build does not know are ignored.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ProgramDescriptor {
    /// Short name of the service.
    pub service: String,
    /// Version of the build.
    pub version: String,
    /// Wire packages that it serves.
    pub serves: Vec<ServedPackage>,
    /// Wire packages that it needs of its peers.
    pub calls: Vec<NeededPackage>,
    /// Files that outlive its process.
    pub state_files: Vec<DeclaredFile>,
}

/// A served wire package.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ServedPackage {
    /// For example `polylet.pleg.v1`.
    pub package: String,
    /// The served level.
    pub level: u32,
}

/// A wire package that a program needs of a peer.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct NeededPackage {
    /// The peer.
    pub service: String,
    /// The package.
    pub package: String,
    /// The lowest sufficient level.
    pub level: u32,
}

/// A file of state.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct DeclaredFile {
    /// Path, relative to one of Polylet's directories.
    pub path: String,
    /// `None` for files in formats of others, and of builds that do not declare theirs.
    #[serde(default)]
    pub format: Option<DeclaredFormat>,
}

/// Versions of the format of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct DeclaredFormat {
    /// The version that is written.
    pub written: u32,
    /// The oldest version that is read.
    pub oldest_read: u32,
}

impl DeclaredFormat {
    /// Whether files of a version are read.
    pub fn reads(&self, version: u32) -> bool {
        (self.oldest_read..=self.written).contains(&version)
    }
}

impl ProgramDescriptor {
    /// The served level of a package; zero if it is not served.
    pub fn served_level(&self, package: &str) -> u32 {
        let served = self.serves.iter().find(|api| api.package == package);
        served.map_or(0, |api| api.level)
    }

    /// The declared format of a file.
    pub fn format(&self, path: &str) -> Option<DeclaredFormat> {
        let declared = self.state_files.iter().find(|file| file.path == path);
        declared.and_then(|file| file.format)
    }
}

/// The name under which a program is installed: the version that it tells, and a number where another
/// program of the same version is installed already. `installed` says of each installed name whether it is
/// the same program.
pub fn version_name(version: &str, installed: &[(String, bool)]) -> String {
    let numbered = |number: u32| match number {
        1 => version.to_owned(),
        number => format!("{version}-{number}"),
    };
    let mut number = 1;
    loop {
        let name = numbered(number);
        match installed.iter().find(|(known, _)| *known == name) {
            Some((_, false)) => number += 1,
            Some((_, true)) | None => return name,
        }
    }
}

/// Whether a version can be the name of a directory.
pub fn is_version_name(version: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "._+~-".contains(c);
    (1..=64).contains(&version.len())
        && version.chars().all(allowed)
        && version.starts_with(|c: char| c.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_program_of_the_same_version_gets_a_number() {
        let name = |installed: &[(&str, bool)]| {
            let installed: Vec<(String, bool)> = installed
                .iter()
                .map(|(name, same)| ((*name).to_owned(), *same))
                .collect();
            version_name("0.1.0", &installed)
        };
        assert_eq!(name(&[]), "0.1.0");
        assert_eq!(name(&[("0.0.9", true)]), "0.1.0");
        assert_eq!(name(&[("0.1.0", true)]), "0.1.0");
        assert_eq!(name(&[("0.1.0", false)]), "0.1.0-2");
        assert_eq!(name(&[("0.1.0-2", true), ("0.1.0", false)]), "0.1.0-2");
        assert_eq!(name(&[("0.1.0", false), ("0.1.0-2", false)]), "0.1.0-3");
    }

    #[test]
    fn version_names_are_file_names() {
        for valid in ["0.1.0", "1.0.0-rc.1+build~2", "0"] {
            assert!(is_version_name(valid), "{valid}");
        }
        let long = "1".repeat(65);
        for invalid in ["", ".", "..", "../x", "a/b", "-1", "1 0", "1\n", "é", &long] {
            assert!(!is_version_name(invalid), "{invalid:?}");
        }
    }
}
