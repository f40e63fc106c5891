//! An API server with fields that this build does not know.

use super::*;

#[test]
fn fields_of_a_newer_server_are_neither_patched_nor_compared() {
    let mut newer = running();
    newer["ability"] = json!({ "level": [1, 2] });
    newer["hostIPs"][0]["zone"] = "a".into();
    newer["containerStatuses"][0]["extra"] = json!({ "fine": true });
    newer["containerStatuses"][0]["state"]["running"]["since"] = "ever".into();
    newer["conditions"][0]["depth"] = 3.into();
    let more = json!({ "type": "Balanced", "status": "Unsure", "depth": 3 });
    newer["conditions"].as_array_mut().unwrap().push(more);
    let api = status(newer);
    let same = merged(&api, &status(running()), rules(true));
    assert_eq!(between("u", &api, &same), None);

    // A change of ours: no other field is patched, and the order names the conditions of others.
    let mut ours = running();
    ours["conditions"][0] = condition("Ready", "False", 9);
    let body = between("u", &api, &merged(&api, &status(ours), rules(true))).unwrap();
    let patched = body["status"].as_object().unwrap();
    let fields: Vec<&String> = patched.keys().collect();
    assert_eq!(fields, ["$setElementOrder/conditions", "conditions"]);
    let types = |list: &Value| -> Vec<Value> {
        let list = list.as_array().unwrap();
        list.iter().map(|it| it["type"].clone()).collect()
    };
    assert_eq!(types(&patched["conditions"]), ["Ready"]);
    let order = types(&patched["$setElementOrder/conditions"]);
    assert!(order.contains(&"Balanced".into()), "{order:?}");
}
