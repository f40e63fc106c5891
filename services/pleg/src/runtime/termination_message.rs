use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use polylet_cri::labels::ContainerAnnotations;
use polylet_cri::{log, v1};

use crate::core::ContainerStatus;

const READ_TIMEOUT: Duration = Duration::from_secs(2);
/// Upstream's limits of a termination message.
const MAX_FILE_BYTES: u64 = 4096;
const MAX_LOG_LINES: u64 = 80;
const MAX_LOG_BYTES: usize = 2048;

/// Where the termination message of an exited container may be.
struct Sources {
    file: Option<PathBuf>,
    log: Option<PathBuf>,
}

/// Appends the termination message of an exited container to the runtime's message.
pub(super) async fn append(container: &mut ContainerStatus, mounts: &[v1::Mount]) {
    let sources = sources(container, mounts);
    if sources.file.is_none() && sources.log.is_none() {
        return;
    }
    // The file is on a volume of the pod, which may hang.
    let reading = tokio::task::spawn_blocking(move || read(&sources));
    let message = tokio::time::timeout(READ_TIMEOUT, reading).await;
    let message = message.ok().and_then(Result::ok).unwrap_or_default();
    if message.is_empty() {
        return;
    }
    if !container.message.is_empty() {
        container.message.push_str(": ");
    }
    container.message.push_str(&message);
}

fn sources(container: &ContainerStatus, mounts: &[v1::Mount]) -> Sources {
    let annotations = ContainerAnnotations::read(|key| container.annotations.get(key));
    let path = annotations.termination_message_path.unwrap_or_default();
    let mount = mounts
        .iter()
        .find(|m| !path.is_empty() && m.container_path == path);
    let policy = annotations.termination_message_policy;
    // A container that could not be started has no log.
    let falls_back = policy.as_deref() == Some("FallbackToLogsOnError")
        && container.exit_code != 0
        && container.reason != "ContainerCannotRun";
    Sources {
        file: mount.map(|m| PathBuf::from(&m.host_path)),
        log: falls_back.then(|| PathBuf::from(&container.log_path)),
    }
}

fn read(sources: &Sources) -> String {
    if let Some(path) = &sources.file {
        match last_bytes(path) {
            Ok(bytes) if !bytes.is_empty() => return lossy(&bytes),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                return format!(
                    "Error on reading termination log {}: {error}",
                    path.display()
                );
            }
        }
    }
    match &sources.log {
        Some(path) => match log::tail_message(path, MAX_LOG_LINES, MAX_LOG_BYTES) {
            Ok(bytes) => lossy(&bytes),
            Err(error) => format!("Error on reading termination message from logs: {error}"),
        },
        None => String::new(),
    }
}

fn last_bytes(path: &Path) -> io::Result<Vec<u8>> {
    // Opening a named pipe would wait for a writer.
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    file.seek(SeekFrom::Start(size.saturating_sub(MAX_FILE_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

// Protobuf and the API carry UTF-8 only.
fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
#[path = "termination_message_tests.rs"]
mod tests;
