//! How often objects are requested for one container.

use std::cell::Cell;

use serde_json::{Value, json};

use super::*;
use crate::runtime::test_manifest;

/// ConfigMaps of 1 MiB, in two values of which one is small. Counts the calls.
#[derive(Default)]
struct FakeObjects {
    calls: Cell<usize>,
}

impl EnvObjectSource for &FakeObjects {
    async fn get(&self, _: EnvObjectKind, name: &str) -> Result<Option<Bytes>, Status> {
        self.calls.set(self.calls.get() + 1);
        let data = json!({"key": name, "large": "x".repeat(1 << 20)});
        let object = json!({"metadata": {"name": name}, "data": data});
        Ok((name != "missing").then(|| object.to_string().into()))
    }
}

fn object_name(number: usize) -> String {
    format!("object{}", number % 18)
}

/// Looks up what the container refers to, in the order of the manifest.
async fn look_up(objects: &FakeObjects, container: Value) -> Result<Vec<Vec<u8>>, StepFailure> {
    let manifest = test_manifest(json!({"containers": [container]}));
    let container = &manifest.containers()[0];
    let mut reader = ObjectReader::with_source(objects, &manifest, container);
    let mut values = Vec::new();
    for source in container.env_from.iter().flatten() {
        let name = &source.config_map_ref.as_ref().unwrap().name;
        let data = reader.data(EnvObjectKind::ConfigMap, name, false).await?;
        values.extend(data.unwrap().values().cloned());
    }
    for variable in container.env.iter().flatten() {
        let source = variable.value_from.as_ref().unwrap();
        let from = source.config_map_key_ref.as_ref().unwrap();
        let optional = from.optional == Some(true);
        let (kind, key) = (EnvObjectKind::ConfigMap, &from.key);
        values.extend(reader.key(kind, &from.name, key, optional).await?);
    }
    assert_eq!(reader.kept_bytes, 0);
    assert!(reader.read.is_empty());
    Ok(values)
}

fn variable(object: &str, key: &str) -> Value {
    let from = json!({"name": object, "key": key, "optional": true});
    json!({"name": "A", "valueFrom": {"configMapKeyRef": from}})
}

#[tokio::test]
async fn an_object_is_requested_once_for_all_references() {
    let objects = FakeObjects::default();
    let names = (0..1000).map(object_name);
    let variables: Vec<Value> = names.map(|name| variable(&name, "key")).collect();
    let values = look_up(&objects, json!({"name": "c", "env": variables})).await;
    let values = values.unwrap();
    assert_eq!(objects.calls.get(), 18);
    assert_eq!(values.len(), 1000);
    assert_eq!(values[19], b"object1");
}

#[tokio::test]
async fn only_values_that_are_used_again_are_kept() {
    let objects = FakeObjects::default();
    let all = |n| json!({"configMapRef": {"name": object_name(n)}});
    // All of each object, and once more a value of the first and one that is missing.
    let container = json!({"name": "c",
        "envFrom": (0..18).map(all).collect::<Vec<_>>(),
        "env": [variable("object0", "key"), variable("object0", "absent"),
            variable("missing", "key"), variable("missing", "key")]});
    let values = look_up(&objects, container).await.unwrap();
    assert_eq!(values.len(), 18 * 2 + 1);
    assert_eq!(values.last().unwrap(), b"object0");
    assert_eq!(objects.calls.get(), 19);
}

#[tokio::test]
async fn the_bytes_kept_for_one_container_are_bounded() {
    let objects = FakeObjects::default();
    let names = (0..1000).map(object_name);
    let variables: Vec<Value> = names.map(|name| variable(&name, "large")).collect();
    let values = look_up(&objects, json!({"name": "c", "env": variables})).await;
    let message = values.unwrap_err().message;
    assert!(message.contains("more than 16 MiB"), "{message}");
    assert_eq!(objects.calls.get(), 16);
}
