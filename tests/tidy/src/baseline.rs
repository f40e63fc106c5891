//! `proto/baseline.txt`: every line of the wire's surface that was ever accepted. A line of our own
//! packages names the level at which it was added, from which the levels that services announce to
//! each other are generated.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use prost_types::FileDescriptorSet;

use crate::wire;

/// The first recorded level. Builds from before levels were recorded announce 1, whatever they serve.
const FIRST_LEVEL: u32 = 2;
/// What separates a line from its level.
const LEVEL: &str = " (level ";

/// A change of the wire that another version would misread.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "removed or changed without a reservation of name and number (proto/README.md):\n{}", gone.join("\n")
)]
pub struct Incompatible {
    /// The lines that are gone.
    pub gone: Vec<String>,
}

/// Lines of the surface, with the level of each of our own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WireBaseline {
    lines: BTreeMap<String, Option<u32>>,
}

impl WireBaseline {
    /// The committed baseline.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn committed(root: &Path) -> std::io::Result<WireBaseline> {
        Ok(WireBaseline::parse(&fs::read_to_string(
            root.join("proto/baseline.txt"),
        )?))
    }

    fn parse(text: &str) -> WireBaseline {
        let line = |line: &str| match line.split_once(LEVEL) {
            Some((line, level)) => (line.to_owned(), level.trim_end_matches(')').parse().ok()),
            None => (line.to_owned(), None),
        };
        WireBaseline {
            lines: text.lines().map(line).collect(),
        }
    }

    /// All lines.
    pub fn lines(&self) -> BTreeSet<&str> {
        self.lines.keys().map(String::as_str).collect()
    }

    /// Accepts a surface: lines that are new to our own packages are added at the next level.
    ///
    /// # Errors
    /// If a line of our own packages is gone and its name and number are not reserved, or if it is a
    /// method: a peer of another version would use them, or take something else for them.
    pub fn accept(&self, surface: Vec<String>) -> Result<WireBaseline, Incompatible> {
        let now: BTreeSet<&str> = surface.iter().map(String::as_str).collect();
        let own = self.lines.keys().filter(|line| package(line).is_some());
        let gone = own.filter(|line| !now.contains(line.as_str()) && !is_reserved(line, &now));
        let gone: Vec<String> = gone.cloned().collect();
        if !gone.is_empty() {
            return Err(Incompatible { gone });
        }
        let next = self.lines.values().flatten().max();
        let next = next.map_or(FIRST_LEVEL, |level| level + 1);
        let line = |line: String| {
            let level = match self.lines.get(&line) {
                Some(Some(level)) => Some(*level),
                _ => package(&line).map(|_| next),
            };
            (line, level)
        };
        Ok(WireBaseline {
            lines: surface.into_iter().map(line).collect(),
        })
    }

    /// The text of the file.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for (line, level) in &self.lines {
            text.push_str(line);
            if let Some(level) = level {
                let _ = write!(text, "{LEVEL}{level})");
            }
            text.push('\n');
        }
        text
    }

    /// The level of each of our packages that has services: that of the newest line in it or in a
    /// package that it imports.
    pub fn levels(&self, wire: &FileDescriptorSet) -> BTreeMap<String, u32> {
        let mut own: BTreeMap<&str, u32> = BTreeMap::new();
        for (line, level) in &self.lines {
            if let (Some(package), Some(level)) = (package(line), level) {
                let newest = own.entry(package).or_default();
                *newest = (*newest).max(*level);
            }
        }
        let mut levels = BTreeMap::new();
        for file in wire.file.iter().filter(|file| !file.service.is_empty()) {
            let packages = imports(wire, file.name());
            let newest = packages.iter().filter_map(|name| own.get(name)).max();
            if let (Some(newest), true) = (newest, file.package().starts_with("polylet.")) {
                levels.insert(file.package().to_owned(), *newest);
            }
        }
        levels
    }
}

/// Our own package of a line, such as `polylet.pleg.v1`.
fn package(line: &str) -> Option<&str> {
    let name = line.split(' ').nth(1)?;
    let end = name.find(".v1.")? + ".v1".len();
    name.starts_with("polylet.").then(|| &name[..end])
}

/// Whether the name and the number of a field or an enum value are reserved now.
fn is_reserved(line: &str, now: &BTreeSet<&str>) -> bool {
    let words: Vec<&str> = line.split(' ').collect();
    let ["field" | "enum", scope, name, "=", number, ..] = words.as_slice() else {
        return false;
    };
    let Ok(number) = number.parse::<i64>() else {
        return false;
    };
    let range = format!("reserved {scope} = ");
    let has_number = now.iter().any(|line| {
        let range = line.strip_prefix(&range);
        let range = range.and_then(|range| range.split_once(" to "));
        range.is_some_and(|(first, last)| {
            let first = first.parse().unwrap_or(i64::MAX);
            let last = last.parse().unwrap_or(i64::MIN);
            (first..=last).contains(&number)
        })
    });
    has_number && now.contains(format!("reserved {scope} {name}").as_str())
}

/// The package of a file and those that it imports.
fn imports<'a>(wire: &'a FileDescriptorSet, file: &str) -> BTreeSet<&'a str> {
    let Some(found) = wire.file.iter().find(|one| one.name() == file) else {
        return BTreeSet::new();
    };
    let imported = found.dependency.iter().flat_map(|name| imports(wire, name));
    imported.chain([found.package()]).collect()
}

/// The Rust code of the levels.
///
/// # Errors
/// If the baseline cannot be read or a .proto file does not compile.
pub fn levels_code(root: &Path) -> Result<String, Box<dyn Error>> {
    let levels = WireBaseline::committed(root)?.levels(&wire::descriptors(root)?);
    let mut code = "// This file is @generated from proto/baseline.txt.\n".to_owned();
    for (package, level) in levels {
        let name = package.split('.').nth(1).unwrap_or_default().to_uppercase();
        let _ = writeln!(code, "/// Level of `{package}`.");
        let _ = writeln!(code, "pub const {name}: u32 = {level};");
    }
    Ok(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(lines: &[&str]) -> Vec<String> {
        lines.iter().map(|line| (*line).to_owned()).collect()
    }

    #[test]
    fn levels_grow_with_their_package_and_what_it_imports() {
        let old = WireBaseline::parse("enum csi.v1.A B = 0\nfield polylet.pleg.v1.Pod uid = 1\n");
        let first = old.accept(lines(&[
            "enum csi.v1.A B = 0",
            "field polylet.pleg.v1.Pod uid = 1",
            "field polylet.sync.v1.Pod uid = 1",
        ]));
        let first = first.expect("additions");
        let second = first.accept(lines(&[
            "enum csi.v1.A B = 0",
            "enum csi.v1.A C = 1",
            "field polylet.common.v1.Cause links = 3",
            "field polylet.pleg.v1.Pod uid = 1",
            "field polylet.sync.v1.Pod uid = 1",
        ]));
        let second = second.expect("additions");
        assert_eq!(WireBaseline::parse(&second.to_text()), second);
        assert_eq!(
            second.to_text(),
            "enum csi.v1.A B = 0\nenum csi.v1.A C = 1\n\
             field polylet.common.v1.Cause links = 3 (level 3)\n\
             field polylet.pleg.v1.Pod uid = 1 (level 2)\n\
             field polylet.sync.v1.Pod uid = 1 (level 2)\n"
        );
        let file =
            |name: &str, imports: &[&str], services: usize| prost_types::FileDescriptorProto {
                name: Some(name.to_owned()),
                package: Some(format!("polylet.{name}.v1")),
                dependency: lines(imports),
                service: vec![prost_types::ServiceDescriptorProto::default(); services],
                ..prost_types::FileDescriptorProto::default()
            };
        let wire = FileDescriptorSet {
            file: vec![
                file("common", &[], 0),
                file("pleg", &["common"], 1),
                file("sync", &[], 1),
            ],
        };
        let expected = [("polylet.pleg.v1", 3), ("polylet.sync.v1", 2)];
        let expected = expected.map(|(package, level)| (package.to_owned(), level));
        assert_eq!(second.levels(&wire), expected.into());
    }

    #[test]
    fn removals_need_reservations_and_raise_the_level() {
        let old = WireBaseline::parse(
            "enum polylet.pleg.v1.Phase PHASE_B = 2 (level 3)\n\
             field polylet.pleg.v1.Pod uid = 1 (level 2)\n\
             rpc polylet.pleg.v1.S/Call .A -> .B (level 2)\n",
        );
        let call = "rpc polylet.pleg.v1.S/Call .A -> .B";
        let gone = |surface: &[&str]| old.accept(lines(surface)).map_err(|error| error.gone);
        let value = "enum polylet.pleg.v1.Phase PHASE_B = 2";
        let uid = "field polylet.pleg.v1.Pod uid = 1";
        assert_eq!(gone(&[value, uid]), Err(lines(&[call])));
        assert_eq!(gone(&[call, uid]), Err(lines(&[value])));
        let number = "reserved polylet.pleg.v1.Phase = 2 to 2";
        let name = "reserved polylet.pleg.v1.Phase PHASE_B";
        assert_eq!(gone(&[call, uid, number]), Err(lines(&[value])));
        assert_eq!(gone(&[call, uid, name]), Err(lines(&[value])));
        let other = "reserved polylet.pleg.v1.Phase = 3 to 9";
        assert_eq!(gone(&[call, uid, name, other]), Err(lines(&[value])));
        // Of another type.
        let changed = "field polylet.pleg.v1.Pod uid = 1 Bytes";
        assert_eq!(gone(&[call, value, changed]), Err(lines(&[uid])));
        let accepted = gone(&[call, uid, name, number]).expect("a reserved removal");
        assert!(
            accepted
                .to_text()
                .contains("reserved polylet.pleg.v1.Phase PHASE_B (level 4)")
        );
    }
}
