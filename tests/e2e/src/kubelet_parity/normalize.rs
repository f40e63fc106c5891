use serde_json::{Map, Value};

/// The status and the variable part of the metadata, one line per field.
pub(super) fn full(pod: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    let mut status = pod["status"].clone();
    if let Some(conditions) = status["conditions"].as_array_mut() {
        conditions.sort_by_key(|condition| condition["type"].to_string());
        let named = conditions.drain(..).map(|mut condition| {
            let kind = condition["type"].take();
            (kind.as_str().unwrap_or_default().to_owned(), condition)
        });
        let named: Map<String, Value> = named.collect();
        status["conditions"] = Value::Object(named);
    }
    flat("status", "", &status, pod, &mut lines);
    for field in ["generation", "deletionGracePeriodSeconds", "finalizers"] {
        flat(field, field, &pod["metadata"][field], pod, &mut lines);
    }
    lines
}

/// Transient state: phase, conditions and container states.
pub(super) fn transient_lines(pod: &Value) -> Vec<String> {
    let status = &pod["status"];
    let text = |value: &Value| plain(value.as_str().unwrap_or("-"), pod);
    let mut lines = vec![format!(
        "phase {} {} {}",
        text(&status["phase"]),
        text(&status["reason"]),
        text(&status["message"])
    )];
    for condition in status["conditions"].as_array().into_iter().flatten() {
        let fields = ["type", "status", "reason", "message"].map(|field| text(&condition[field]));
        lines.push(format!("condition {}", fields.join(" ")));
    }
    let lists = [
        "initContainerStatuses",
        "containerStatuses",
        "ephemeralContainerStatuses",
    ];
    for list in lists {
        for container in status[list].as_array().into_iter().flatten() {
            let mut line = format!("{list} {}", text(&container["name"]));
            for field in ["ready", "started", "restartCount"] {
                line.push_str(&format!(" {field}={}", container[field]));
            }
            for field in ["state", "lastState"] {
                let mut parts = Vec::new();
                flat(field, "", &container[field], pod, &mut parts);
                line.push_str(&format!(" {}", parts.join(" ")));
            }
            lines.push(line);
        }
    }
    lines
}

fn flat(path: &str, key: &str, value: &Value, pod: &Value, lines: &mut Vec<String>) {
    match value {
        Value::Null => {}
        Value::Object(fields) => {
            if fields.is_empty() {
                lines.push(format!("{path}={{}}"));
            }
            for (key, value) in fields {
                flat(&format!("{path}.{key}"), key, value, pod, lines);
            }
        }
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                flat(&format!("{path}[{at}]"), "", item, pod, lines);
            }
        }
        Value::String(text) => {
            let time = ["At", "Time"].iter().any(|end| key.ends_with(end));
            let text = if time {
                "TIME".to_owned()
            } else {
                plain(text, pod)
            };
            lines.push(format!("{path}={text}"));
        }
        other => lines.push(format!("{path}={other}")),
    }
}

/// A text with this pod's uid, addresses and container ids replaced.
pub(super) fn plain(text: &str, pod: &Value) -> String {
    let mut text = text.to_owned();
    let uid = pod["metadata"]["uid"].as_str().unwrap_or_default();
    let hash = pod["metadata"]["annotations"]["kubernetes.io/config.hash"].as_str();
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let ip = pod["status"]["podIP"].as_str().unwrap_or_default();
    let own_ip = pod["status"]["podIP"] != pod["status"]["hostIP"];
    let generated = pod["metadata"]["generateName"].is_string();
    for (varying, placeholder) in [
        (uid, "UID"),
        (uid.replace('-', "_").as_str(), "UID"),
        (hash.unwrap_or_default(), "UID"),
        (if own_ip { ip } else { "" }, "IP"),
        (if generated { name } else { "" }, "NAME"),
    ] {
        if !varying.is_empty() {
            text = text.replace(varying, placeholder);
        }
    }
    // The name of the token volume is random.
    let token = "kube-api-access-";
    if let Some(at) = text.find(token) {
        let end = at + token.len();
        text.replace_range(end..(end + 5).min(text.len()), "TOKEN");
    }
    // The usage of other pods varies.
    if let Some((before, after)) = text.split_once(", used: ") {
        let rest = after.trim_start_matches(|c: char| c.is_ascii_digit());
        text = format!("{before}, used: N{rest}");
    }
    let mut out = String::new();
    let mut run = String::new();
    for c in text.chars().chain([' ']) {
        if c.is_ascii_hexdigit() {
            run.push(c);
            continue;
        }
        out.push_str(if run.len() == 64 { "ID" } else { &run });
        run.clear();
        out.push(c);
    }
    out.pop();
    out
}
