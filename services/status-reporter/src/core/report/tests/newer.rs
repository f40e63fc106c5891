//! A server that knows more than this build.

use super::*;

#[test]
fn what_only_a_newer_server_knows_is_neither_touched_nor_news() {
    let mut newer = running();
    newer["ability"] = json!({ "level": [1, 2] });
    newer["hostIPs"][0]["zone"] = "a".into();
    newer["containerStatuses"][0]["mood"] = json!({ "fine": true });
    newer["containerStatuses"][0]["state"]["running"]["since"] = "ever".into();
    newer["conditions"][0]["depth"] = 3.into();
    let more = json!({ "type": "Balanced", "status": "Unsure", "depth": 3 });
    newer["conditions"].as_array_mut().unwrap().push(more);
    let holds = status(newer);
    let same = merged(&holds, &status(running()), true);
    assert_eq!(between("u", &holds, &same), None);

    // Something of ours changes: nothing else is spoken of, and the order names what others wrote.
    let mut ours = running();
    ours["conditions"][0] = condition("Ready", "False", 9);
    let body = between("u", &holds, &merged(&holds, &status(ours), true)).unwrap();
    let said = body["status"].as_object().unwrap();
    let fields: Vec<&String> = said.keys().collect();
    assert_eq!(fields, ["$setElementOrder/conditions", "conditions"]);
    let types = |list: &Value| -> Vec<Value> {
        let list = list.as_array().unwrap();
        list.iter().map(|it| it["type"].clone()).collect()
    };
    assert_eq!(types(&said["conditions"]), ["Ready"]);
    let order = types(&said["$setElementOrder/conditions"]);
    assert!(order.contains(&"Balanced".into()), "{order:?}");
}
