//! Files of a pod: logs, links to logs, termination messages.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use polylet_cri::log::RotatedName;
use polylet_model::{PodUid, names};
use polylet_wire::common::v1::PodRef;

use super::{RuntimeManager, StepContext, failure};
use crate::core::step::{StepFailure, StepOutcome};

/// The directory of a pod's logs.
pub fn log_dir(manager: &RuntimeManager, pod: &PodRef) -> PathBuf {
    names::pod_log_dir(
        &manager.pod_logs_dir(),
        &pod.namespace,
        &pod.name,
        &PodUid::from(pod.uid.as_str()),
    )
}

/// Creates a directory and its parents.
pub fn create_dir(path: &Path, mode: u32) -> std::io::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(mode)
        .create(path)
}

/// Creates a container's log directory.
pub fn create_log_dir(
    manager: &RuntimeManager,
    pod: &PodRef,
    container: &str,
) -> std::io::Result<()> {
    create_dir(&log_dir(manager, pod).join(container), 0o755)
}

/// Attempts of a container with a log: `<attempt>.log`, rotated or not.
pub fn logged_attempts(manager: &RuntimeManager, pod: &PodRef, container: &str) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(log_dir(manager, pod).join(container)) else {
        return Vec::new();
    };
    let attempt = |name: &str| {
        let (number, rest) = name.split_once(".log")?;
        (rest.is_empty() || rest.starts_with('.')).then(|| number.parse().ok())?
    };
    entries
        .flatten()
        .filter_map(|entry| attempt(entry.file_name().to_str()?))
        .collect()
}

/// Creates the pod's directory, readable by root and its group.
pub fn create_pod_dir(root: &Path, uid: &str) -> std::io::Result<()> {
    create_dir(&names::pod_dir(root, &PodUid::from(uid)), 0o750)
}

/// Links a container's log into the directory that log collectors read.
pub fn create_log_link(
    manager: &RuntimeManager,
    pod: &PodRef,
    container: &str,
    attempt: u32,
    id: &str,
) {
    let dir = &manager.ctx.config().polylet.container_logs_directory;
    let link = dir.join(names::container_log_link(
        &pod.name,
        &pod.namespace,
        container,
        &id.to_owned().into(),
    ));
    let log = log_dir(manager, pod).join(names::container_log_path(container, attempt));
    let created =
        create_dir(dir, 0o755).and_then(|()| match std::os::unix::fs::symlink(&log, &link) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            other => other,
        });
    if let Err(error) = created {
        tracing::warn!(path = %link.display(), %error, "failed to create log link");
    }
}

/// Removes the link to a container's log.
pub fn remove_log_link(manager: &RuntimeManager, pod: &PodRef, container: &str, id: &str) {
    let dir = &manager.ctx.config().polylet.container_logs_directory;
    let link = dir.join(names::container_log_link(
        &pod.name,
        &pod.namespace,
        container,
        &id.to_owned().into(),
    ));
    let _ = fs::remove_file(link);
}

/// Creates the file for a container's termination message, writable by any user.
pub fn create_termination_log(
    manager: &RuntimeManager,
    pod: &PodRef,
    container: &str,
    attempt: u32,
) -> std::io::Result<PathBuf> {
    let uid = PodUid::from(pod.uid.as_str());
    let path = names::termination_log(
        &manager.ctx.config().polylet.root_directory,
        &uid,
        container,
        attempt,
    );
    if let Some(dir) = path.parent() {
        create_dir(dir, 0o750)?;
    }
    remove_empty_dir(&path)?;
    fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666))?;
    Ok(path)
}

/// Removes the files of one attempt of a container: its termination message and logs.
pub fn remove_attempt_files(
    manager: &RuntimeManager,
    context: &StepContext,
    container: &str,
    attempt: u32,
) {
    let uid = PodUid::from(context.pod.uid.as_str());
    let message = names::termination_log(
        &manager.ctx.config().polylet.root_directory,
        &uid,
        container,
        attempt,
    );
    let log = log_dir(manager, &context.pod).join(names::container_log_path(container, attempt));
    for path in [message].into_iter().chain(rotated_logs(&log)).chain([log]) {
        let _ = fs::remove_file(path);
    }
}

/// The rotated files of a log.
fn rotated_logs(log: &Path) -> Vec<PathBuf> {
    let (Some(dir), Some(name)) = (log.parent(), log.file_name().and_then(|n| n.to_str())) else {
        return Vec::new();
    };
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let is_rotated = |file: &fs::DirEntry| {
        let file = file.file_name();
        file.to_str()
            .is_some_and(|file| RotatedName::parse(name, file).is_some())
    };
    entries.filter(is_rotated).map(|file| file.path()).collect()
}

/// Removes the pod's logs and directory, after its volumes are gone. Unknown files in the directory
/// are kept.
pub async fn remove(
    manager: &Rc<RuntimeManager>,
    context: &StepContext,
) -> Result<StepOutcome, StepFailure> {
    let uid = PodUid::from(context.pod.uid.as_str());
    manager
        .userns
        .release(uid.as_str())
        .map_err(|error| failure("RemoveFilesError", error.to_string()))?;
    let pod_dir = names::pod_dir(&manager.ctx.config().polylet.root_directory, &uid);
    let logs = log_dir(manager, &context.pod);
    match tokio::task::spawn_blocking(move || remove_dirs(&logs, &pod_dir)).await {
        Ok(Ok(())) => Ok(StepOutcome::Done),
        Ok(Err(error)) => Err(failure("RemoveFilesError", error.to_string())),
        Err(error) => Err(failure("RemoveFilesError", error.to_string())),
    }
}

fn remove_dirs(logs: &Path, pod_dir: &Path) -> std::io::Result<()> {
    let hosts = pod_dir.join("etc-hosts");
    ignore_not_found(fs::remove_dir_all(logs))?;
    remove_empty_dir(&hosts)?;
    ignore_not_found(fs::remove_file(hosts))?;
    ignore_not_found(fs::remove_dir_all(pod_dir.join("containers")))?;
    match fs::remove_dir(pod_dir) {
        Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => {
            tracing::warn!(path = %pod_dir.display(), "pod directory is not empty; keeping it");
            Ok(())
        }
        other => ignore_not_found(other),
    }
}

/// Removes an empty directory at the path of a file. A runtime creates it when it mounts the file for
/// a call of a previous process instance after the pod's files are gone.
pub fn remove_empty_dir(path: &Path) -> std::io::Result<()> {
    match fs::remove_dir(path) {
        Err(error) if error.kind() == ErrorKind::NotADirectory => Ok(()),
        other => ignore_not_found(other),
    }
}

fn ignore_not_found(result: std::io::Result<()>) -> std::io::Result<()> {
    match result {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_created_late_by_the_runtime_are_removed() {
        let root = tempfile::tempdir().unwrap();
        let (logs, pod) = (root.path().join("logs"), root.path().join("pod"));
        fs::create_dir_all(pod.join("etc-hosts")).unwrap();
        fs::create_dir_all(pod.join("containers/main/0")).unwrap();
        remove_dirs(&logs, &pod).unwrap();
        assert!(!pod.exists());
        remove_dirs(&logs, &pod).unwrap();
    }

    #[test]
    fn only_empty_directories_are_removed() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("etc-hosts");
        remove_empty_dir(&path).unwrap();
        fs::write(&path, "content").unwrap();
        remove_empty_dir(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "content");
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        remove_empty_dir(&path).unwrap();
        assert!(!path.exists());
    }
}
