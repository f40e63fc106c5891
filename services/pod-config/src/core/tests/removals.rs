//! When a pod counts as removed and added again.

use super::*;

const PATH: &str = "/m/a.yaml";

fn second(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// What happens to the manifest `/m/a.yaml`.
enum Change {
    /// Reads pods of these names, at the given second.
    Read(&'static [&'static str], i64),
    /// Reads a text that is no manifest.
    Broken(i64),
    /// Cannot read it.
    Unreadable,
    /// It is deleted.
    Remove(i64),
    /// A listing of the directory does not have it.
    Unlisted(i64),
    /// A listing of the directory has it.
    Listed(i64),
    /// The process is replaced by another one.
    Restart,
    /// The process is replaced by one of a former version, and that by another one of this version.
    Downgrade,
}

use Change::*;

fn restart(manifests: &Manifests, forget: bool) -> Manifests {
    let persisted = PersistedSource::new(
        "n".into(),
        None,
        manifests,
        BTreeMap::new(),
        BTreeMap::new(),
    );
    let mut json = serde_json::to_value(persisted).unwrap();
    if forget {
        json.as_object_mut().unwrap().remove("removals");
        for manifest in json["manifests"].as_object_mut().unwrap().values_mut() {
            for pod in manifest["pods"].as_array_mut().unwrap() {
                pod.as_object_mut().unwrap().remove("removed_at");
            }
        }
    }
    let persisted: PersistedSource = serde_json::from_value(json).unwrap();
    persisted.manifests()
}

fn apply(manifests: &mut Manifests, change: &Change) {
    match change {
        Read(names, at) => {
            let texts: Vec<String> = names.iter().map(|name| pod_text(name)).collect();
            manifests.update(
                PATH,
                read(&texts.join("---\n")),
                at.to_string(),
                second(*at),
            );
        }
        Broken(at) => manifests.update(PATH, read("kind: Po"), String::new(), second(*at)),
        Unreadable => manifests.mark_failed(PATH, "denied".into(), String::new()),
        Remove(at) => manifests.remove(PATH, second(*at)),
        Unlisted(at) => manifests.retain(|_| false, second(*at)),
        Listed(at) => manifests.retain(|origin| origin == PATH, second(*at)),
        Restart => *manifests = restart(manifests, false),
        Downgrade => *manifests = restart(manifests, true),
    }
}

#[test]
fn pod_that_is_added_again_has_the_time_of_its_removal() {
    let a = || Read(&["a"], 1);
    for (case, changes, expected) in [
        ("a new pod", vec![a()], None),
        ("written again", vec![a(), Read(&["a"], 2)], None),
        ("replaced", vec![a(), Listed(2), Read(&["a"], 2)], None),
        ("broken", vec![a(), Broken(2), Read(&["a"], 3)], None),
        ("unreadable", vec![a(), Unreadable, Read(&["a"], 3)], None),
        ("removed", vec![a(), Remove(2), Read(&["a"], 3)], Some(2)),
        ("unlisted", vec![a(), Unlisted(2), Read(&["a"], 3)], Some(2)),
        (
            "missing in one version of the manifest",
            vec![Read(&["a", "b"], 1), Read(&["b"], 2), Read(&["a", "b"], 3)],
            Some(2),
        ),
        (
            "another pod of the manifest is removed",
            vec![Read(&["a", "b"], 1), Read(&["a"], 2), Read(&["a", "b"], 3)],
            None,
        ),
        (
            "changed after it was added again",
            vec![a(), Remove(2), Read(&["a"], 3), Read(&["a", "b"], 4)],
            Some(2),
        ),
        (
            "removed twice",
            vec![a(), Remove(2), Read(&["a"], 3), Remove(4), Read(&["a"], 5)],
            Some(4),
        ),
        (
            "the process restarts after it was added again",
            vec![a(), Remove(2), Read(&["a"], 3), Restart, Read(&["a"], 4)],
            Some(2),
        ),
        (
            "the process restarts before it is added again",
            vec![a(), Remove(2), Restart, Read(&["a"], 3)],
            Some(2),
        ),
        (
            "a former version forgets the removal",
            vec![a(), Remove(2), Read(&["a"], 3), Downgrade, Read(&["a"], 4)],
            None,
        ),
        (
            "unchanged over a restart",
            vec![a(), Restart, Listed(2)],
            None,
        ),
    ] {
        let mut manifests = Manifests::default();
        for change in &changes {
            apply(&mut manifests, change);
        }
        let merged = manifests.merged();
        let mut pods = merged.pods.values().map(|(_, pod)| pod);
        let pod = pods.find(|pod| pod.name == "a-node1").expect(case);
        assert_eq!(pod.removed_at, expected.map(second), "{case}");
    }
}

#[test]
fn pod_that_another_manifest_has_is_not_removed() {
    let text = pod_text("a").replace("{name: a}", "{name: a, uid: u1}");
    let mut manifests = Manifests::default();
    for path in [PATH, "/m/b.yaml"] {
        manifests.update(path, read(&text), String::new(), NOW);
    }
    manifests.remove(PATH, second(2));
    assert!(manifests.removals().all().is_empty());
    manifests.remove("/m/b.yaml", second(3));
    let removed = manifests.removals().all();
    assert_eq!(removed, &BTreeMap::from([("u1".to_owned(), second(3))]));
}
