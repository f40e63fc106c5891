//! An API server with fields that this build does not know.

use super::*;

#[test]
fn fields_of_a_newer_server_are_neither_patched_nor_compared() {
    let now = at(0);
    let written = status(&settings(), &healthy(), &NodeStatus::default(), now);
    let mut newer = serde_json::to_value(&written).unwrap();
    newer["ability"] = json!({ "level": [1, 2] });
    newer["nodeInfo"]["loader"] = "grub".into();
    newer["daemonEndpoints"]["proxy"] = json!({ "Port": 1 });
    for list in ["conditions", "addresses"] {
        for item in newer[list].as_array_mut().unwrap() {
            item["since"] = "ever".into();
        }
    }
    let more = json!({ "type": "Balanced", "status": "Unsure", "since": "ever" });
    newer["conditions"].as_array_mut().unwrap().push(more);
    let current: NodeStatus = serde_json::from_value(newer).unwrap();
    let again = status(&settings(), &healthy(), &current, now);
    assert!(!patch::differs(&current, &again));
    let nothing = patch::status(&current, &again, &BTreeMap::new());
    assert_eq!(nothing, json!({ "status": {} }));

    // A change of ours: no other field is patched.
    let mut worse = healthy();
    worse
        .pressure
        .insert(PressureResource::Memory, pressure(true));
    let desired = status(&settings(), &worse, &current, now);
    let patched = &patch::status(&current, &desired, &BTreeMap::new())["status"];
    let fields: Vec<&String> = patched.as_object().unwrap().keys().collect();
    assert_eq!(fields, ["conditions"]);
    let conditions = patched["conditions"].as_array().unwrap();
    let types: Vec<&Value> = conditions.iter().map(|it| &it["type"]).collect();
    assert_eq!(types, ["MemoryPressure"]);
}
