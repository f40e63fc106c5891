//! `polylet profile`: where a service spends processor time, or allocates memory.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use polylet_kit::{Config, profile};
use polylet_wire::lifecycle::v1::ProfileKind;
use serde_json::json;
use tonic::Code;

use crate::args::{OutputFormat, ProfileArgs};
use crate::client::{self, ClientError};

/// Takes a profile of a service, and writes it to a file.
pub(crate) async fn show(
    config: &Config,
    args: ProfileArgs,
    output: OutputFormat,
) -> Result<(), ClientError> {
    let service = client::known_service(&args.service)?;
    let (kind, name) = if args.heap {
        (ProfileKind::Heap, "heap")
    } else {
        (ProfileKind::Cpu, "cpu")
    };
    let channel = client::connect(config, service)?;
    let taken = profile::take_from(channel, kind, Duration::from_secs(args.seconds)).await;
    let taken = taken.map_err(|status| {
        let message = status.message().to_owned();
        match status.code() {
            Code::ResourceExhausted | Code::Unimplemented => ClientError::Refused(message),
            _ => ClientError::NoResponse { service, message },
        }
    })?;
    let path = args
        .file
        .unwrap_or_else(|| PathBuf::from(format!("{service}-{name}.pb.gz")));
    if path == Path::new("-") {
        // A closed pipe is no error.
        let mut out = std::io::stdout().lock();
        let _ = out.write_all(&taken).and_then(|()| out.flush());
        return Ok(());
    }
    write(&path, &taken)?;
    let file = path.display();
    match output {
        OutputFormat::Json => {
            super::json(&json!({ "service": service, "kind": name, "file": path }))
        }
        OutputFormat::Text => {
            super::print(&format!(
                "wrote {file}; show it with: go tool pprof -top {file}\n"
            ));
        }
    }
    Ok(())
}

fn write(path: &Path, profile: &[u8]) -> Result<(), ClientError> {
    std::fs::write(path, profile).map_err(|source| ClientError::Write {
        path: path.to_owned(),
        source,
    })
}
