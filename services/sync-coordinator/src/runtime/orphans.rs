//! Data of orphaned pods on the node: directories, logs, cgroups and links to logs. A pod that was
//! removed while this service was down, before it had a sandbox, is found by these only.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use polylet_machine::mountinfo;
use polylet_model::names;
use polylet_wire::common::v1::PodRef;

use super::RuntimeManager;
use crate::core::orphans::is_uid;

/// The minimum age of a dead link: a younger one may belong to a container in creation.
const MIN_LINK_AGE: Duration = Duration::from_secs(60);

/// All pods with a directory, logs or a cgroup on the node; the name is known only from logs. Pods
/// with a mount below their directory are left out: volume-manager unmounts it first.
pub async fn find(manager: &Rc<RuntimeManager>) -> Vec<PodRef> {
    let logs = manager.pod_logs_dir();
    let cgroups = manager.cgroups.qos_dirs(manager).await;
    let pods = manager.ctx.config().polylet.root_directory.join("pods");
    let search = move || {
        let mut found = find_cgroups(&cgroups);
        found.extend(find_directories(&pods));
        found.extend(find_logs(&logs));
        let mounted = mounted_pods(&pods);
        found.retain(|uid, _| is_uid(uid) && !mounted.contains(uid));
        found.into_values().collect()
    };
    // The next search follows after a failed one.
    tokio::task::spawn_blocking(search)
        .await
        .unwrap_or_default()
}

type PodsByUid = BTreeMap<String, PodRef>;

fn find_logs(dir: &Path) -> PodsByUid {
    let pod = |name: String| {
        let (namespace, name, uid) = names::parse_pod_log_dir(&name)?;
        let pod = PodRef {
            uid: uid.as_str().to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        Some((pod.uid.clone(), pod))
    };
    subdirectories(dir).filter_map(pod).collect()
}

fn find_cgroups(dirs: &[PathBuf]) -> PodsByUid {
    let pod = |name: String| {
        let uid = polylet_model::cgroup::pod_uid_from_dir_name(&name)?;
        Some(unnamed(uid.as_str().to_owned()))
    };
    let names = dirs.iter().flat_map(|dir| subdirectories(dir));
    names.filter_map(pod).collect()
}

fn find_directories(dir: &Path) -> PodsByUid {
    subdirectories(dir).map(unnamed).collect()
}

fn unnamed(uid: String) -> (String, PodRef) {
    let pod = PodRef {
        uid: uid.clone(),
        ..PodRef::default()
    };
    (uid, pod)
}

/// UIDs of the pods with a mount below their directory.
fn mounted_pods(pods: &Path) -> BTreeSet<String> {
    let pods = pods.canonicalize().unwrap_or_else(|_| pods.to_owned());
    let Ok(mounts) = mountinfo::read() else {
        // Without a mount table any pod may have a mount.
        return subdirectories(&pods).collect();
    };
    let uid_of = |mount: mountinfo::Mount| {
        let below = mount.mount_point.strip_prefix(&pods).ok()?;
        Some(below.iter().next()?.to_str()?.to_owned())
    };
    mounts.into_iter().filter_map(uid_of).collect()
}

/// Removes links to logs that do not exist, except those in use: the log of a running container is
/// missing for a moment during its rotation.
pub async fn remove_dead_log_links(manager: &Rc<RuntimeManager>, in_use: BTreeSet<String>) {
    let dir = manager
        .ctx
        .config()
        .polylet
        .container_logs_directory
        .clone();
    let logs = manager.pod_logs_dir();
    let work = move || {
        for name in dead_links(&dir, &logs).difference(&in_use) {
            let link = dir.join(name);
            match fs::remove_file(&link) {
                Ok(()) => tracing::debug!(path = %link.display(), "removed dead log link"),
                Err(error) => {
                    tracing::debug!(path = %link.display(), %error, "failed to remove dead log link");
                }
            }
        }
    };
    // The next search follows after a failed one.
    let _ = tokio::task::spawn_blocking(work).await;
}

/// Names of old links to logs that do not exist.
fn dead_links(links: &Path, logs: &Path) -> BTreeSet<String> {
    let now = SystemTime::now();
    let is_dead = |entry: &fs::DirEntry| {
        let path = entry.path();
        let is_old = fs::symlink_metadata(&path)
            .and_then(|meta| meta.modified())
            .is_ok_and(|at| now.duration_since(at).is_ok_and(|age| age > MIN_LINK_AGE));
        is_old
            && fs::read_link(&path).is_ok_and(|target| target.starts_with(logs))
            && fs::metadata(&path).is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound)
    };
    let entries = fs::read_dir(links).into_iter().flatten().flatten();
    entries
        .filter(is_dead)
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}

/// Names of the directories in a directory; none if it does not exist.
fn subdirectories(dir: &Path) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .filter_map(|entry| entry.file_name().into_string().ok())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn pods_are_found_by_logs_and_cgroups() {
        let dir = tempfile::tempdir().unwrap();
        let (logs, class) = (dir.path().join("logs"), dir.path().join("class"));
        for path in [
            logs.join("default_web_u1"),
            logs.join("unrelated"),
            class.join("podu2"),
            class.join("kubepods-burstable-pod1_2.slice"),
            class.join("burstable"),
        ] {
            fs::create_dir_all(path).unwrap();
        }
        let by_logs: Vec<PodRef> = find_logs(&logs).into_values().collect();
        assert_eq!((by_logs.len(), by_logs[0].name.as_str()), (1, "web"));
        let by_cgroups = find_cgroups(&[class, dir.path().join("none")]);
        assert_eq!(by_cgroups.into_keys().collect::<Vec<_>>(), ["1-2", "u2"]);
    }

    #[test]
    fn only_old_dead_links_into_our_logs() {
        let dir = tempfile::tempdir().unwrap();
        let (links, logs) = (dir.path().join("links"), dir.path().join("pods"));
        fs::create_dir_all(&links).unwrap();
        fs::create_dir_all(&logs).unwrap();
        fs::write(logs.join("there"), "").unwrap();
        for (name, target) in [
            ("alive", logs.join("there")),
            ("dead", logs.join("gone")),
            ("foreign", dir.path().join("gone")),
        ] {
            symlink(target, links.join(name)).unwrap();
        }
        assert!(dead_links(&links, &logs).is_empty(), "links are too young");
        for name in ["alive", "dead", "foreign"] {
            let aged = std::process::Command::new("touch")
                .args(["-h", "-d", "2020-01-01"])
                .arg(links.join(name))
                .status();
            assert!(aged.unwrap().success());
        }
        let dead: Vec<String> = dead_links(&links, &logs).into_iter().collect();
        assert_eq!(dead, ["dead"]);
    }
}
