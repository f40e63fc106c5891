//! What a process is called in traces: the attributes of its resource, under OpenTelemetry's names.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::sync::OnceLock;

use object::Endianness;
use object::elf::{ELF_NOTE_GNU, FileHeader64, NT_GNU_BUILD_ID};
use object::read::elf::{FileHeader, ProgramHeader};

/// Where the notes of a program are, from its begin.
const MAX_NOTES: u64 = 64 << 10;
/// Bytes of the build ID that are shown.
const SHOWN_BYTES: usize = 6;
/// Attributes for all processes of the environment, as `name=value` pairs.
const ATTRIBUTES: &str = "OTEL_RESOURCE_ATTRIBUTES";
/// Most attributes that are read from it, and bytes of a value.
const MAX_ATTRIBUTES: usize = 32;
const MAX_VALUE: usize = 256;

/// A process that records spans.
#[derive(Debug, Clone, Copy)]
pub struct ProcessIdentity<'a> {
    /// Short name; spans carry `polylet-<service>`.
    pub service: &'a str,
    /// Version of the program.
    pub version: &'a str,
    /// Incarnation of the process; empty if it has none.
    pub incarnation: &'a str,
    /// Name of the node.
    pub node: &'a str,
}

impl ProcessIdentity<'_> {
    /// The attributes of the resource. Those of the environment win, but not over what tells processes apart.
    pub fn attributes(&self) -> BTreeMap<String, String> {
        let given = std::env::var(ATTRIBUTES).unwrap_or_default();
        self.attributes_with(&given)
    }

    fn attributes_with(&self, environment: &str) -> BTreeMap<String, String> {
        let system = rustix::system::uname();
        let host = system.nodename().to_string_lossy();
        let defaults = [
            ("service.namespace", "polylet".to_owned()),
            ("host.name", host.trim().to_owned()),
            ("k8s.node.name", self.node.to_owned()),
        ];
        let fixed = [
            ("service.name", format!("polylet-{}", self.service)),
            ("service.version", full_version(self.version)),
            ("service.instance.id", self.incarnation.to_owned()),
            ("process.pid", std::process::id().to_string()),
        ];
        let named = |(name, value): (&str, String)| (name.to_owned(), value);
        let mut attributes: BTreeMap<_, _> = defaults.map(named).into();
        attributes.extend(parse(environment));
        attributes.extend(fixed.map(named));
        attributes.retain(|_, value| !value.is_empty());
        attributes
    }
}

/// The pairs of the environment; what is none is left out.
fn parse(text: &str) -> impl Iterator<Item = (String, String)> {
    let pairs = text.split(',').filter_map(|pair| {
        let (name, value) = pair.split_once('=')?;
        let value = percent_encoding::percent_decode_str(value.trim());
        let value = value.decode_utf8().ok()?.into_owned();
        let name = name.trim().to_owned();
        (!name.is_empty() && value.len() <= MAX_VALUE).then_some((name, value))
    });
    pairs.take(MAX_ATTRIBUTES)
}

/// A version with the build it is: two builds of one version are told apart.
pub fn full_version(version: &str) -> String {
    static BUILD: OnceLock<Option<String>> = OnceLock::new();
    let build = BUILD.get_or_init(|| build_id(&own_program()));
    match build {
        Some(build) => format!("{version}+{build}"),
        None => version.to_owned(),
    }
}

/// The begin of this process's program; empty if it cannot be read.
fn own_program() -> Vec<u8> {
    let mut begin = Vec::new();
    if let Ok(file) = File::open("/proc/self/exe") {
        // What was read is enough, or has no note.
        let _ = file.take(MAX_NOTES).read_to_end(&mut begin);
    }
    begin
}

/// The hash of its content that a linker has written into a program.
fn build_id(program: &[u8]) -> Option<String> {
    let header = FileHeader64::<Endianness>::parse(program).ok()?;
    let endian = header.endian().ok()?;
    for segment in header.program_headers(endian, program).ok()? {
        let Ok(Some(mut notes)) = segment.notes(endian, program) else {
            continue;
        };
        while let Ok(Some(note)) = notes.next() {
            if note.name() == ELF_NOTE_GNU && note.n_type(endian) == NT_GNU_BUILD_ID {
                let bytes = note.desc().iter().take(SHOWN_BYTES);
                return Some(bytes.map(|byte| format!("{byte:02x}")).collect());
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PLEG: ProcessIdentity<'_> = ProcessIdentity {
        service: "pleg",
        version: "1.2.3",
        incarnation: "i",
        node: "n1",
    };

    #[test]
    fn the_environment_adds_attributes_and_does_not_make_processes_alike() {
        let attributes = PLEG.attributes_with(
            "k8s.cluster.name=a%20b, host.name=h ,service.name=mine,wrong,=x,service.namespace=",
        );
        let of = |name: &str| attributes.get(name).map_or("", String::as_str);
        assert_eq!(of("k8s.cluster.name"), "a b");
        assert_eq!(of("host.name"), "h");
        assert_eq!(of("service.name"), "polylet-pleg");
        assert_eq!(of("service.instance.id"), "i");
        assert_eq!(of("process.pid"), std::process::id().to_string());
        let version = of("service.version");
        assert!(
            version == "1.2.3" || version.starts_with("1.2.3+"),
            "{version}"
        );
        assert!(
            !attributes.contains_key("service.namespace"),
            "empty ones are left out"
        );
        assert_eq!(PLEG.attributes_with("")["service.namespace"], "polylet");
    }

    #[test]
    fn programs_of_this_linker_have_a_build_id() {
        let id = build_id(&own_program()).expect("a build ID");
        assert_eq!(id.len(), 2 * SHOWN_BYTES);
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_program_with_or_without_a_build_id(
            cut in 0_usize..4096,
            flips in prop::collection::vec((0_usize..2048, any::<u8>()), 0..8),
        ) {
            let mut program = own_program();
            program.truncate(cut);
            for (at, byte) in flips {
                if let Some(old) = program.get_mut(at) {
                    *old = byte;
                }
            }
            let _ = build_id(&program);
        }
    }
}
