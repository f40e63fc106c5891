//! A server that knows more than this build.

use super::*;

#[test]
fn what_only_a_newer_server_knows_is_neither_touched_nor_news() {
    let now = at(0);
    let written = status(&settings(), &well(), &NodeStatus::default(), now);
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
    let held: NodeStatus = serde_json::from_value(newer).unwrap();
    let again = status(&settings(), &well(), &held, now);
    assert!(!patch::differs(&held, &again));
    let unsaid = patch::status(&held, &again, &BTreeMap::new());
    assert_eq!(unsaid, json!({ "status": {} }));

    // Something of ours changes: nothing else is spoken of.
    let mut worse = well();
    worse.pressure.insert(Resource::Memory, pressure(true));
    let wanted = status(&settings(), &worse, &held, now);
    let said = &patch::status(&held, &wanted, &BTreeMap::new())["status"];
    let fields: Vec<&String> = said.as_object().unwrap().keys().collect();
    assert_eq!(fields, ["conditions"]);
    let conditions = said["conditions"].as_array().unwrap();
    let types: Vec<&Value> = conditions.iter().map(|it| &it["type"]).collect();
    assert_eq!(types, ["MemoryPressure"]);
}
