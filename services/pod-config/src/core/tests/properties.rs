//! Properties for any input.

use proptest::prelude::*;

use super::*;

fn shuffled(value: &Value, reverse: bool) -> String {
    match value {
        Value::Object(map) => {
            let mut parts: Vec<String> = map
                .iter()
                .map(|(k, v)| format!("{}:{}", Value::from(k.as_str()), shuffled(v, reverse)))
                .collect();
            if reverse {
                parts.reverse();
            }
            format!("{{{}}}", parts.join(" , "))
        }
        Value::Array(items) => format!(
            "[{}]",
            items
                .iter()
                .map(|v| shuffled(v, reverse))
                .collect::<Vec<_>>()
                .join(",")
        ),
        other => other.to_string(),
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,12}".prop_map(Value::from)
    ];
    let words = prop_oneof![
        Just("metadata"),
        Just("spec"),
        Just("containers"),
        Just("name"),
        Just("image"),
        Just("volumes"),
        Just("items"),
        Just("env"),
        Just("data"),
        Just("resources"),
        Just("limits"),
        Just("tolerations"),
        Just("annotations"),
        Just("uid"),
        Just("livenessProbe"),
    ];
    let key = prop_oneof![words.prop_map(str::to_owned), "\\PC{0,8}"];
    leaf.prop_recursive(5, 64, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(key.clone(), inner, 0..5)
                .prop_map(|m| Value::Object(m.into_iter().collect()))
        ]
    })
}

proptest! {
    #[test]
    fn no_bytes_cause_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = parse(&bytes, &origin("/m/a"), &|_| None, NOW);
    }

    #[test]
    fn no_text_causes_a_panic(text in "(---\n|apiVersion: v1\n|kind: (Pod|Secret|List)\n|metadata:|spec: |items:|- |  |\\{|\\[|\\PC{0,6}|\n){0,30}") {
        let _ = read(&text);
    }

    #[test]
    fn no_object_causes_a_panic(mut value in any_json(), kind in "(Pod|PodList|List|Secret|ConfigMap)") {
        if let Value::Object(map) = &mut value {
            map.insert("apiVersion".into(), "v1".into());
            map.insert("kind".into(), kind.into());
        }
        let parsed = read(&value.to_string());
        prop_assert!(parsed.errors.len() <= 21);
    }

    #[test]
    fn truncated_file_removes_no_pod(cut in 0usize..200) {
        let whole = format!("{}  terminationGracePeriodSeconds: 5\n", pod_text("a"));
        let mut manifests = Manifests::default();
        manifests.update("/m/a", read(&whole), String::new(), NOW);
        let part = &whole[..cut.min(whole.len())];
        manifests.update("/m/a", read(part), String::new(), NOW);
        let merged = manifests.merged();
        prop_assert_eq!(merged.pods.values().map(|(_, p)| p.name.as_str()).collect::<Vec<_>>(), ["a-node1"]);
    }

    #[test]
    fn order_of_keys_does_not_matter(labels in prop::collection::btree_map("[a-z]{1,8}", "[a-z0-9]{1,8}", 0..6), grace in 0i64..100) {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "labels": labels},
            "spec": {"terminationGracePeriodSeconds": grace, "containers": [{"name": "a", "image": "i"}]}});
        prop_assert_eq!(read(&shuffled(&pod, false)), read(&shuffled(&pod, true)));
        prop_assert_eq!(read(&pod.to_string()).errors, vec![]);
    }

    #[test]
    fn order_of_updates_does_not_matter(files in prop::collection::btree_map("[a-e]", "[a-c]", 0..5), swap in any::<bool>()) {
        let mut one = Manifests::default();
        let mut other = Manifests::default();
        let read = |file: &str, name: &str| parse(pod_text(name).as_bytes(), &origin(file), &|_| None, NOW);
        files.iter().for_each(|(file, name)| one.update(file, read(file, name), String::new(), NOW));
        if swap {
            other.update("a", Parsed::default(), String::new(), NOW);
        }
        files.iter().rev().for_each(|(file, name)| other.update(file, read(file, name), String::new(), NOW));
        prop_assert_eq!(one.merged(), other.merged());
    }

    #[test]
    fn json_and_yaml_decode_alike(name in "[a-z]{1,8}", number in any::<i32>()) {
        let value = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "n": number}});
        let yaml = serde_yaml_ng::to_string(&value).expect("YAML");
        let documents = decode(yaml.as_bytes());
        prop_assert_eq!(&documents, &decode(value.to_string().as_bytes()));
        prop_assert_eq!(&documents[0].body, &Ok(ManifestObject::Pod(value)));
    }
}
