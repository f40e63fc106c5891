use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use polylet_cri::labels::ContainerNotes;
use polylet_cri::{log, v1};
use polylet_wire::pleg::v1::Container;

/// How long the file may keep its reader waiting.
const READING: Duration = Duration::from_secs(2);
const FILE_BYTES: u64 = 4096;
const LOG_LINES: u64 = 80;
const LOG_BYTES: usize = 2048;

/// Where the last words of an ended container may be.
struct Sources {
    file: Option<PathBuf>,
    log: Option<PathBuf>,
}

/// Adds what an ended container left as its termination message to the runtime's own.
pub(super) async fn add(container: &mut Container, mounts: &[v1::Mount]) {
    let sources = sources(container, mounts);
    if sources.file.is_none() && sources.log.is_none() {
        return;
    }
    // The file lies on a volume of the pod, which may hang.
    let reading = tokio::task::spawn_blocking(move || read(&sources));
    let words = tokio::time::timeout(READING, reading).await;
    let words = words.ok().and_then(Result::ok).unwrap_or_default();
    if words.is_empty() {
        return;
    }
    if !container.message.is_empty() {
        container.message.push_str(": ");
    }
    container.message.push_str(&words);
}

fn sources(container: &Container, mounts: &[v1::Mount]) -> Sources {
    let notes = ContainerNotes::read(|key| container.annotations.get(key));
    let path = notes.termination_message_path.unwrap_or_default();
    let mount = mounts
        .iter()
        .find(|m| !path.is_empty() && m.container_path == path);
    // What could not even be started has no log.
    let falls_back = notes.termination_message_policy.as_deref() == Some("FallbackToLogsOnError")
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
            Ok(words) if !words.is_empty() => return text(&words),
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
        Some(path) => match log::last_words(path, LOG_LINES, LOG_BYTES) {
            Ok(words) => text(&words),
            Err(error) => format!("Error on reading termination message from logs: {error}"),
        },
        None => String::new(),
    }
}

fn last_bytes(path: &Path) -> io::Result<Vec<u8>> {
    // Opening a pipe in its place would wait for a writer.
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    file.seek(SeekFrom::Start(size.saturating_sub(FILE_BYTES)))?;
    let mut words = Vec::new();
    file.take(FILE_BYTES).read_to_end(&mut words)?;
    Ok(words)
}

// The wire and the API carry text only.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
#[path = "last_words_tests.rs"]
mod tests;
