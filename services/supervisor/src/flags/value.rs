//! Values of flags, in upstream's syntax.

use serde_json::{Map, Value, json};

use super::table::FlagKind;

/// Parses a value for its field. The error names the expected syntax.
pub(super) fn parse(kind: FlagKind, text: &str) -> Result<Value, String> {
    Ok(match kind {
        FlagKind::Text => text.into(),
        FlagKind::Name => text.trim().to_lowercase().into(),
        FlagKind::Bool => match text {
            "true" | "TRUE" | "True" | "t" | "T" | "1" => true.into(),
            "false" | "FALSE" | "False" | "f" | "F" | "0" => false.into(),
            _ => return Err("expected true or false".to_owned()),
        },
        FlagKind::Int => match text.parse::<i64>() {
            Ok(number) => number.into(),
            Err(_) => return Err("expected a whole number".to_owned()),
        },
        FlagKind::List => items(text).map(Value::from).collect(),
        FlagKind::Map => map(text, '=', |value| Ok(value.into()))?,
        FlagKind::Thresholds => map(text, '<', |value| Ok(value.into()))?,
        FlagKind::Bools => map(text, '=', |value| parse(FlagKind::Bool, value))?,
        FlagKind::Headers => map(text, ':', |value| Ok(json!([value])))?,
        FlagKind::Taints => items(text).map(taint).collect::<Result<Value, _>>()?,
        FlagKind::NodeIps => node_ips(text)?,
        FlagKind::Verbosity => verbosity(text)?,
    })
}

/// Adds the value of a repeated flag.
pub(super) fn add(value: &mut Value, more: Value) {
    match (value, more) {
        (Value::Array(items), Value::Array(more)) => items.extend(more),
        (Value::Object(fields), Value::Object(more)) => fields.extend(more),
        (value, more) => *value = more,
    }
}

fn items(text: &str) -> impl Iterator<Item = &str> {
    text.split(',')
        .map(str::trim)
        .filter(|item| !item.is_empty())
}

fn map(
    text: &str,
    separator: char,
    value: impl Fn(&str) -> Result<Value, String>,
) -> Result<Value, String> {
    let mut fields = Map::new();
    for item in items(text) {
        let Some((key, text)) = item.split_once(separator) else {
            return Err(format!(
                "{item:?}: expected comma-separated key{separator}value"
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

/// One address, or one of each IP family.
fn node_ips(text: &str) -> Result<Value, String> {
    let parsed: Result<Vec<std::net::IpAddr>, _> = items(text).map(str::parse).collect();
    let Ok(ips) = parsed else {
        return Err("expected an IP address, or one of each family".to_owned());
    };
    match ips.as_slice() {
        [] => Ok(json!({})),
        // An unspecified address selects the family of the detected one.
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

/// The log level for upstream's verbosity.
fn verbosity(text: &str) -> Result<Value, String> {
    let verbosity = text.parse().map_err(|_| "expected a whole number")?;
    Ok(polylet_kit::telemetry::verbosity_filter(verbosity).into())
}
