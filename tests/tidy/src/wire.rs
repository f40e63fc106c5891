use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use crate::{baseline, known};
use prost_types::{DescriptorProto, EnumDescriptorProto, FileDescriptorSet};

/// Messages that can contain secrets and have no derived `Debug`; `proto/src/secrets.rs` has their
/// redacted implementations.
const SECRETS: &[&str] = &[
    ".csi.v1.NodePublishVolumeRequest",
    ".csi.v1.NodeExpandVolumeRequest",
    ".csi.v1.NodeStageVolumeRequest",
    ".runtime.v1.AuthConfig",
    ".runtime.v1.ContainerStatusResponse",
    ".runtime.v1.KeyValue",
    ".polylet.podconfig.v1.GetObjectResponse",
    ".polylet.podconfig.v1.IssueTokenResponse",
    ".polylet.podconfig.v1.PodCertificate",
    ".polylet.podconfig.v1.WatchObjectResponse",
];

/// All .proto files below `proto/`, sorted.
///
/// # Errors
/// If a directory cannot be read.
pub fn proto_files(root: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let roots = [
        "polylet",
        "runtime",
        "containerd",
        "csi",
        "deviceplugin",
        "pluginregistration",
    ];
    let mut queue: Vec<_> = roots.map(|of| root.join("proto").join(of)).into();
    while let Some(dir) = queue.pop() {
        if !dir.exists() {
            continue;
        }
        for entry in fs::read_dir(dir)? {
            let path = entry?.path();
            if path.is_dir() {
                queue.push(path);
            } else if path.extension().is_some_and(|e| e == "proto") {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// The compiled descriptors of the whole wire.
///
/// # Errors
/// If a file does not compile.
pub fn descriptors(root: &Path) -> Result<FileDescriptorSet, Box<dyn Error>> {
    Ok(protox::compile(proto_files(root)?, [root.join("proto")])?)
}

/// Generates the Rust code of the wire into `out`; returns the number of files.
///
/// # Errors
/// If a .proto file does not compile or `out` cannot be written.
pub fn generate_into(root: &Path, out: &Path) -> Result<usize, Box<dyn Error>> {
    let set = descriptors(root)?;
    fs::create_dir_all(out)?;
    for old in fs::read_dir(out)? {
        fs::remove_file(old?.path())?;
    }
    let builder = || {
        let builder = tonic_prost_build::configure();
        let builder = builder.out_dir(out).build_transport(false);
        builder.skip_debug(SECRETS)
    };
    let files = |wanted: fn(&str) -> bool| FileDescriptorSet {
        file: set
            .file
            .iter()
            .filter(|file| file.package().starts_with("google.") || wanted(file.package()))
            .cloned()
            .collect(),
    };
    builder()
        // Equal messages have equal encodings.
        .btree_map(".polylet")
        // A store and its watchers share large values.
        .bytes(".polylet")
        .codec_path("crate::known::Codec")
        .compile_fds(files(|package| package.starts_with("polylet.")))?;
    // The container runtime's and so on.
    builder().compile_fds(files(|package| !package.starts_with("polylet.")))?;
    fs::write(out.join("known.rs"), known::code(&set)?)?;
    fs::write(out.join("levels.rs"), baseline::levels_code(root)?)?;
    Ok(fs::read_dir(out)?.count())
}

/// The compatibility surface of the wire: one line per service method, message field, enum value and
/// reserved name or number, sorted. The committed copy is `proto/baseline.txt`.
///
/// # Errors
/// If a .proto file does not compile.
pub fn surface(root: &Path) -> Result<Vec<String>, Box<dyn Error>> {
    let mut lines = Vec::new();
    for file in descriptors(root)?.file {
        let package = file.package().to_owned();
        if package.starts_with("google.") {
            continue;
        }
        for service in &file.service {
            for method in &service.method {
                lines.push(format!(
                    "rpc {package}.{}/{} {}{} -> {}{}",
                    service.name(),
                    method.name(),
                    if method.client_streaming() {
                        "stream "
                    } else {
                        ""
                    },
                    method.input_type(),
                    if method.server_streaming() {
                        "stream "
                    } else {
                        ""
                    },
                    method.output_type(),
                ));
            }
        }
        for message in &file.message_type {
            describe_message(&package, message, &mut lines);
        }
        for one in &file.enum_type {
            describe_enum(&package, one, &mut lines);
        }
    }
    lines.sort();
    Ok(lines)
}

fn describe_message(scope: &str, message: &DescriptorProto, lines: &mut Vec<String>) {
    let name = format!("{scope}.{}", message.name());
    for field in &message.field {
        lines.push(format!(
            "field {name} {} = {} {:?} {:?} {}",
            field.name(),
            field.number(),
            field.label(),
            field.r#type(),
            field.type_name(),
        ));
    }
    for reserved in &message.reserved_range {
        // Its end is not part of it, other than that of an enum.
        let last = reserved.end() - 1;
        lines.push(format!("reserved {name} = {} to {last}", reserved.start()));
    }
    for reserved in &message.reserved_name {
        lines.push(format!("reserved {name} {reserved}"));
    }
    for nested in &message.nested_type {
        describe_message(&name, nested, lines);
    }
    for one in &message.enum_type {
        describe_enum(&name, one, lines);
    }
}

fn describe_enum(scope: &str, one: &EnumDescriptorProto, lines: &mut Vec<String>) {
    for value in &one.value {
        lines.push(format!(
            "enum {scope}.{} {} = {}",
            one.name(),
            value.name(),
            value.number()
        ));
    }
    let name = format!("{scope}.{}", one.name());
    for reserved in &one.reserved_range {
        let (first, last) = (reserved.start(), reserved.end());
        lines.push(format!("reserved {name} = {first} to {last}"));
    }
    for reserved in &one.reserved_name {
        lines.push(format!("reserved {name} {reserved}"));
    }
}
