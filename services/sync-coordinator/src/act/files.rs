//! The pod's own files: logs, links to them, last words.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use polylet_cri::log::Rotated;
use polylet_model::{PodUid, names};
use polylet_wire::common::v1::PodRef;

use super::{Hands, Job, said};
use crate::core::learn::{Outcome, Trouble};

/// Where a pod's logs are.
pub fn log_dir(hands: &Hands, pod: &PodRef) -> PathBuf {
    names::pod_log_dir(
        &hands.pod_logs(),
        &pod.namespace,
        &pod.name,
        &PodUid::from(pod.uid.as_str()),
    )
}

/// Makes a folder with its parents.
pub fn make_dir(path: &Path, mode: u32) -> std::io::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(mode)
        .create(path)
}

/// Makes a container's log folder.
pub fn make_log_dir(hands: &Hands, pod: &PodRef, container: &str) -> std::io::Result<()> {
    make_dir(&log_dir(hands, pod).join(container), 0o755)
}

/// The attempts of a container that a log was written of: `N.log`, rotated or not.
pub fn logged_attempts(hands: &Hands, pod: &PodRef, container: &str) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(log_dir(hands, pod).join(container)) else {
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

/// Makes the pod's folder, not for others to look into.
pub fn make_pod_dir(hands: &Hands, uid: &str) -> std::io::Result<PathBuf> {
    let path = names::pod_dir(
        &hands.ctx.config().polylet.root_directory,
        &PodUid::from(uid),
    );
    make_dir(&path, 0o750)?;
    Ok(path)
}

/// Links a container's log into the folder that log collectors follow.
pub fn link_log(hands: &Hands, pod: &PodRef, container: &str, attempt: u32, id: &str) {
    let folder = &hands.ctx.config().polylet.container_logs_directory;
    let link = folder.join(names::container_log_link(
        &pod.name,
        &pod.namespace,
        container,
        &id.to_owned().into(),
    ));
    let log = log_dir(hands, pod).join(names::container_log_path(container, attempt));
    let made =
        make_dir(folder, 0o755).and_then(|()| match std::os::unix::fs::symlink(&log, &link) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            other => other,
        });
    if let Err(error) = made {
        tracing::warn!(link = %link.display(), %error, "log link not made");
    }
}

/// Removes that link.
pub fn unlink_log(hands: &Hands, pod: &PodRef, container: &str, id: &str) {
    let folder = &hands.ctx.config().polylet.container_logs_directory;
    let link = folder.join(names::container_log_link(
        &pod.name,
        &pod.namespace,
        container,
        &id.to_owned().into(),
    ));
    let _ = fs::remove_file(link);
}

/// Makes the file of a container's last words; anybody may write it.
pub fn make_termination_log(
    hands: &Hands,
    pod: &PodRef,
    container: &str,
    attempt: u32,
) -> std::io::Result<PathBuf> {
    let uid = PodUid::from(pod.uid.as_str());
    let path = names::termination_log(
        &hands.ctx.config().polylet.root_directory,
        &uid,
        container,
        attempt,
    );
    if let Some(folder) = path.parent() {
        make_dir(folder, 0o750)?;
    }
    clear_folder(&path)?;
    fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666))?;
    Ok(path)
}

/// Removes what one attempt of a container leaves beside its record: last words and log.
pub fn remove_attempt(hands: &Hands, job: &Job, container: &str, attempt: u32) {
    let uid = PodUid::from(job.pod.uid.as_str());
    let words = names::termination_log(
        &hands.ctx.config().polylet.root_directory,
        &uid,
        container,
        attempt,
    );
    let log = log_dir(hands, &job.pod).join(names::container_log_path(container, attempt));
    for path in [words].into_iter().chain(rotated(&log)).chain([log]) {
        let _ = fs::remove_file(path);
    }
}

/// The rotated files of a log.
fn rotated(log: &Path) -> Vec<PathBuf> {
    let (Some(folder), Some(name)) = (log.parent(), log.file_name().and_then(|n| n.to_str()))
    else {
        return Vec::new();
    };
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let is_one = |file: &fs::DirEntry| {
        let file = file.file_name();
        file.to_str()
            .is_some_and(|file| Rotated::parse(name, file).is_some())
    };
    entries.filter(is_one).map(|file| file.path()).collect()
}

/// Removes the pod's logs and its folder. Volumes are gone by now; what else is
/// found in the folder is not ours and stays.
pub async fn remove(hands: &Rc<Hands>, job: &Job) -> Result<Outcome, Trouble> {
    let uid = PodUid::from(job.pod.uid.as_str());
    hands
        .userns
        .release(uid.as_str())
        .map_err(|error| said("RemoveFilesError", error.to_string()))?;
    let pod_dir = names::pod_dir(&hands.ctx.config().polylet.root_directory, &uid);
    let logs = log_dir(hands, &job.pod);
    match tokio::task::spawn_blocking(move || remove_folders(&logs, &pod_dir)).await {
        Ok(Ok(())) => Ok(Outcome::Done),
        Ok(Err(error)) => Err(said("RemoveFilesError", error.to_string())),
        Err(error) => Err(said("RemoveFilesError", error.to_string())),
    }
}

fn remove_folders(logs: &Path, pod_dir: &Path) -> std::io::Result<()> {
    let hosts = pod_dir.join("etc-hosts");
    gone(fs::remove_dir_all(logs))?;
    clear_folder(&hosts)?;
    gone(fs::remove_file(hosts))?;
    gone(fs::remove_dir_all(pod_dir.join("containers")))?;
    match fs::remove_dir(pod_dir) {
        Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => {
            tracing::warn!(path = %pod_dir.display(), "the pod's folder is not empty and stays");
            Ok(())
        }
        other => gone(other),
    }
}

/// Removes an empty folder from where a file of ours belongs. A runtime makes one when it comes to
/// mount the file for a call whose caller is dead, after the pod and its files have gone.
pub fn clear_folder(path: &Path) -> std::io::Result<()> {
    match fs::remove_dir(path) {
        Err(error) if error.kind() == ErrorKind::NotADirectory => Ok(()),
        other => gone(other),
    }
}

fn gone(result: std::io::Result<()>) -> std::io::Result<()> {
    match result {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_that_a_late_runtime_made_go_with_the_pod() {
        let root = tempfile::tempdir().unwrap();
        let (logs, pod) = (root.path().join("logs"), root.path().join("pod"));
        fs::create_dir_all(pod.join("etc-hosts")).unwrap();
        fs::create_dir_all(pod.join("containers/main/0")).unwrap();
        remove_folders(&logs, &pod).unwrap();
        assert!(!pod.exists());
        remove_folders(&logs, &pod).unwrap();
    }

    #[test]
    fn only_an_empty_folder_is_cleared() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("etc-hosts");
        clear_folder(&path).unwrap();
        fs::write(&path, "kept").unwrap();
        clear_folder(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "kept");
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        clear_folder(&path).unwrap();
        assert!(!path.exists());
    }
}
