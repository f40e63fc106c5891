//! Values of flags, as upstream writes them.

use serde_json::{Map, Value, json};

use super::table::Kind;

/// A flag's value as its field has it; an error says what was expected.
pub(super) fn read(kind: Kind, text: &str) -> Result<Value, String> {
    Ok(match kind {
        Kind::Text => text.into(),
        Kind::Name => text.trim().to_lowercase().into(),
        Kind::Bool => match text {
            "true" | "TRUE" | "True" | "t" | "T" | "1" => true.into(),
            "false" | "FALSE" | "False" | "f" | "F" | "0" => false.into(),
            _ => return Err("expected true or false".to_owned()),
        },
        Kind::Int => match text.parse::<i64>() {
            Ok(number) => number.into(),
            Err(_) => return Err("expected a whole number".to_owned()),
        },
        Kind::List => parts(text).map(Value::from).collect(),
        Kind::Map => map(text, '=', |value| Ok(value.into()))?,
        Kind::Thresholds => map(text, '<', |value| Ok(value.into()))?,
        Kind::Bools => map(text, '=', |value| read(Kind::Bool, value))?,
        Kind::Headers => map(text, ':', |value| Ok(json!([value])))?,
        Kind::Taints => parts(text).map(taint).collect::<Result<Value, _>>()?,
        Kind::NodeIps => node_ips(text)?,
        Kind::Verbosity => verbosity(text)?,
    })
}

/// A value of a flag that is given once more.
pub(super) fn add(value: &mut Value, more: Value) {
    match (value, more) {
        (Value::Array(items), Value::Array(more)) => items.extend(more),
        (Value::Object(fields), Value::Object(more)) => fields.extend(more),
        (value, more) => *value = more,
    }
}

fn parts(text: &str) -> impl Iterator<Item = &str> {
    text.split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
}

fn map(
    text: &str,
    between: char,
    value: impl Fn(&str) -> Result<Value, String>,
) -> Result<Value, String> {
    let mut fields = Map::new();
    for part in parts(text) {
        let Some((key, text)) = part.split_once(between) else {
            return Err(format!(
                "{part:?}: expected key{between}value, separated by commas"
            ));
        };
        fields.insert(key.trim().to_owned(), value(text.trim())?);
    }
    Ok(fields.into())
}

/// `key=value:Effect`, `key:Effect`.
fn taint(text: &str) -> Result<Value, String> {
    let expected = || format!("{text:?}: expected key=value:Effect or key:Effect");
    let (rest, effect) = text.rsplit_once(':').ok_or_else(expected)?;
    let (key, value) = rest.split_once('=').unwrap_or((rest, ""));
    if key.is_empty() || effect.is_empty() {
        return Err(expected());
    }
    Ok(json!({ "key": key, "value": value, "effect": effect }))
}

/// One address, or one of each family.
fn node_ips(text: &str) -> Result<Value, String> {
    let parsed: Result<Vec<std::net::IpAddr>, _> = parts(text).map(str::parse).collect();
    let Ok(ips) = parsed else {
        return Err("expected an IP address, or one of each family".to_owned());
    };
    match ips.as_slice() {
        [] => Ok(json!({})),
        // Unspecified asks for an address of that family to be found out.
        [first] => Ok(json!({ "nodeIP": first })),
        [first, second] if first.is_unspecified() || second.is_unspecified() => {
            Err("two addresses cannot include an unspecified one".to_owned())
        }
        [first, second] if first.is_ipv4() != second.is_ipv4() => {
            Ok(json!({ "nodeIP": first, "secondaryNodeIP": second }))
        }
        _ => Err("expected an IP address, or one of each family".to_owned()),
    }
}

/// Upstream's verbosity as a level: libraries stay quiet, as they are no part of the node.
fn verbosity(text: &str) -> Result<Value, String> {
    let quiet = "h2=info,hyper=info,hyper_util=info,rustls=info,tower=info,tonic=info";
    let level = match text.parse::<u32>() {
        Ok(0..=3) => "info".to_owned(),
        Ok(4..=7) => format!("debug,{quiet}"),
        Ok(_) => format!("trace,{quiet}"),
        Err(_) => return Err("expected a whole number".to_owned()),
    };
    Ok(level.into())
}
