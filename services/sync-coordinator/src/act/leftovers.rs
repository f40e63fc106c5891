//! What is on the node of pods that nobody may know any more: directories, logs, cgroups, and links
//! to logs. A pod that was removed while this service was away, before it had a sandbox, is found by
//! these alone.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use polylet_model::names;
use polylet_wire::common::v1::PodRef;

use super::Hands;
use crate::core::leftovers::is_uid;

/// A younger link may be that of a container which is just being made.
const YOUNG: Duration = Duration::from_secs(60);

/// Every pod that has a directory, logs or a cgroup here. Names are known of those that have logs.
/// Not those with a mount below their directory: volume-manager comes first.
pub async fn find(hands: &Rc<Hands>) -> Vec<PodRef> {
    let logs = hands.pod_logs();
    let cgroups = hands.cgroups.class_places(hands).await;
    let pods = hands.ctx.config().polylet.root_directory.join("pods");
    let look = move || {
        let mut found = of_cgroups(&cgroups);
        found.extend(of_directories(&pods));
        found.extend(of_logs(&logs));
        let mounted = mounted(&pods);
        found.retain(|uid, _| is_uid(uid) && !mounted.contains(uid));
        found.into_values().collect()
    };
    // Looked for again in the next life.
    tokio::task::spawn_blocking(look).await.unwrap_or_default()
}

type Found = BTreeMap<String, PodRef>;

fn of_logs(folder: &Path) -> Found {
    let pod = |name: String| {
        let (namespace, name, uid) = names::parse_pod_log_dir(&name)?;
        let pod = PodRef {
            uid: uid.as_str().to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        Some((pod.uid.clone(), pod))
    };
    names_in(folder).filter_map(pod).collect()
}

fn of_cgroups(folders: &[PathBuf]) -> Found {
    let pod = |name: String| {
        let uid = polylet_model::cgroup::pod_uid_of(&name)?;
        let pod = PodRef {
            uid: uid.as_str().to_owned(),
            ..PodRef::default()
        };
        Some((pod.uid.clone(), pod))
    };
    folders
        .iter()
        .flat_map(|folder| names_in(folder))
        .filter_map(pod)
        .collect()
}

fn of_directories(folder: &Path) -> Found {
    let pod = |uid: String| {
        let pod = PodRef {
            uid: uid.clone(),
            ..PodRef::default()
        };
        (uid, pod)
    };
    names_in(folder).map(pod).collect()
}

/// Those of the pods' directories that something is mounted below.
fn mounted(pods: &Path) -> BTreeSet<String> {
    let pods = pods.canonicalize().unwrap_or_else(|_| pods.to_owned());
    let Ok(mounts) = fs::read_to_string("/proc/self/mountinfo") else {
        // Where mounts cannot be told, any may have one.
        return names_in(&pods).collect();
    };
    let points = mounts.lines().filter_map(mount_point);
    let uid_of = |point: PathBuf| {
        let uid = point.strip_prefix(&pods).ok()?.iter().next()?;
        Some(uid.to_str()?.to_owned())
    };
    points.filter_map(uid_of).collect()
}

/// The fifth field of a line; the kernel writes spaces and the like in octal.
fn mount_point(line: &str) -> Option<PathBuf> {
    let field = line.split(' ').nth(4)?;
    let mut path = String::with_capacity(field.len());
    let mut parts = field.split('\\');
    path.push_str(parts.next()?);
    for part in parts {
        let code = part
            .get(..3)
            .and_then(|code| u8::from_str_radix(code, 8).ok())?;
        path.push(char::from(code));
        path.push_str(&part[3..]);
    }
    Some(PathBuf::from(path))
}

/// Takes links away that lead to no log, but for those that are `needed`: the log of a container that
/// runs is away for a moment while it is rotated.
pub async fn unlink(hands: &Rc<Hands>, needed: BTreeSet<String>) {
    let folder = hands.ctx.config().polylet.container_logs_directory.clone();
    let logs = hands.pod_logs();
    let work = move || {
        for name in dead_links(&folder, &logs).difference(&needed) {
            let link = folder.join(name);
            match fs::remove_file(&link) {
                Ok(()) => tracing::debug!(link = %link.display(), "dead link removed"),
                Err(error) => tracing::debug!(link = %link.display(), %error, "dead link stays"),
            }
        }
    };
    // Looked for again.
    let _ = tokio::task::spawn_blocking(work).await;
}

/// Links into the logs' folder that lead nowhere, and not only since a moment ago.
fn dead_links(links: &Path, logs: &Path) -> BTreeSet<String> {
    let now = SystemTime::now();
    let is_dead = |entry: &fs::DirEntry| {
        let path = entry.path();
        let is_old = fs::symlink_metadata(&path)
            .and_then(|meta| meta.modified())
            .is_ok_and(|at| now.duration_since(at).is_ok_and(|age| age > YOUNG));
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

/// The folders in a folder; none in one that is not there.
fn names_in(folder: &Path) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
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
            logs.join("strange"),
            class.join("podu2"),
            class.join("kubepods-burstable-pod1_2.slice"),
            class.join("burstable"),
        ] {
            fs::create_dir_all(path).unwrap();
        }
        let of_logs: Vec<PodRef> = of_logs(&logs).into_values().collect();
        assert_eq!((of_logs.len(), of_logs[0].name.as_str()), (1, "web"));
        let of_cgroups = of_cgroups(&[class, dir.path().join("none")]);
        assert_eq!(of_cgroups.into_keys().collect::<Vec<_>>(), ["1-2", "u2"]);
    }

    #[test]
    fn mount_points() {
        let line = "36 35 98:0 / /var/lib/a\\040b rw - tmpfs tmpfs rw";
        assert_eq!(mount_point(line), Some("/var/lib/a b".into()));
        assert_eq!(mount_point("36 35 98:0 / /x rw"), Some("/x".into()));
        for wrong in ["", "1 2 3 4", "1 2 3 4 /a\\04", "1 2 3 4 /a\\é04"] {
            assert_eq!(mount_point(wrong), None, "{wrong}");
        }
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
        assert!(dead_links(&links, &logs).is_empty(), "they are young");
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
