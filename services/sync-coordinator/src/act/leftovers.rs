//! What is on the node of pods that nobody may know any more: logs and cgroups. A pod that was
//! removed while this service was away, before it had a sandbox, is found by these alone.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::rc::Rc;

use polylet_model::names;
use polylet_wire::common::v1::PodRef;

use super::Hands;

/// Every pod that has logs or a cgroup here. Names are known of those that have logs.
pub async fn find(hands: &Rc<Hands>) -> Vec<PodRef> {
    let logs = hands.pod_logs();
    let cgroups = hands.cgroups.class_places(hands).await;
    let look = move || {
        let mut found = of_cgroups(&cgroups);
        found.extend(of_logs(&logs));
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

fn of_cgroups(folders: &[std::path::PathBuf]) -> Found {
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

/// The folders in a folder; none in one that is not there.
fn names_in(folder: &Path) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .filter_map(|entry| entry.file_name().into_string().ok())
}

#[cfg(test)]
mod tests {
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
}
