//! Defaults of pod-level resources: `defaultHugePagePodLimits` and `defaultPodRequests`.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::error::DumpError;
use super::quantity::GoQuantity;

type Object = Map<String, Value>;
type GoResourceList = BTreeMap<String, GoQuantity>;

/// Sets the defaults of pod-level limits and requests from those of the containers.
pub(super) fn apply(spec: &mut Object) -> Result<(), DumpError> {
    let length = |spec: &Object, key: &str| {
        let list = spec.get("resources").and_then(|own| own.get(key));
        list.and_then(Value::as_object).map_or(0, Map::len)
    };
    if length(spec, "limits") == 0 && length(spec, "requests") == 0 {
        return Ok(());
    }
    let huge_pages = aggregate(spec, "limits")?
        .into_iter()
        .filter(|(name, _)| is_huge_pages(name));
    for (name, limit) in huge_pages {
        if !has(spec, "requests", &name) {
            set_missing(spec, "limits", name, limit.to_json());
        }
    }
    if length(spec, "limits") == 0 {
        return Ok(());
    }
    for (name, request) in aggregate(spec, "requests")? {
        if is_pod_level(&name) && !is_huge_pages(&name) {
            set_missing(spec, "requests", name, request.to_json());
        }
    }
    let limits = spec.get("resources").and_then(|own| own.get("limits"));
    let limits = limits.and_then(Value::as_object).cloned();
    for (name, limit) in limits.into_iter().flatten() {
        if is_pod_level(&name) {
            set_missing(spec, "requests", name, limit);
        }
    }
    Ok(())
}

fn is_huge_pages(name: &str) -> bool {
    name.starts_with("hugepages-")
}

fn is_pod_level(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || is_huge_pages(name)
}

fn has(spec: &Object, key: &str, name: &str) -> bool {
    let list = spec.get("resources").and_then(|own| own.get(key));
    list.is_some_and(|list| list.get(name).is_some())
}

fn set_missing(spec: &mut Object, key: &str, name: String, value: Value) {
    let Some(Value::Object(own)) = spec.get_mut("resources") else {
        return;
    };
    let list = own.entry(key).or_insert(Value::Null);
    if list.is_null() {
        *list = json!({});
    }
    if let Value::Object(list) = list {
        list.entry(name).or_insert(value);
    }
}

/// `AggregateContainerRequests` and `AggregateContainerLimits`: the sum of the containers and sidecars,
/// or what starting an init container takes, whichever is more.
fn aggregate(spec: &Object, key: &str) -> Result<GoResourceList, DumpError> {
    let mut sum = GoResourceList::new();
    for container in containers(spec, "containers") {
        add(&mut sum, &resources(container, key)?)?;
    }
    let mut sidecars = GoResourceList::new();
    let mut largest = GoResourceList::new();
    for container in containers(spec, "initContainers") {
        let mut own = resources(container, key)?;
        if container.get("restartPolicy").and_then(Value::as_str) == Some("Always") {
            add(&mut sum, &own)?;
            add(&mut sidecars, &own)?;
            raise(&mut largest, &sidecars)?;
        } else {
            add(&mut own, &sidecars)?;
            raise(&mut largest, &own)?;
        }
    }
    raise(&mut sum, &largest)?;
    Ok(sum)
}

fn containers<'a>(spec: &'a Object, list: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    let list = spec.get(list).and_then(Value::as_array);
    list.into_iter().flatten()
}

fn resources(container: &Value, key: &str) -> Result<GoResourceList, DumpError> {
    let own = container.get("resources").and_then(|own| own.get(key));
    let own = own.and_then(Value::as_object);
    own.into_iter()
        .flatten()
        .map(|(name, value)| {
            let quantity = GoQuantity::from_json(value).ok_or_else(GoQuantity::invalid)?;
            Ok((name.clone(), quantity))
        })
        .collect()
}

fn add(list: &mut GoResourceList, more: &GoResourceList) -> Result<(), DumpError> {
    for (name, quantity) in more {
        match list.get_mut(name) {
            Some(sum) => sum.add(quantity).ok_or_else(GoQuantity::invalid)?,
            None => {
                list.insert(name.clone(), quantity.clone());
            }
        }
    }
    Ok(())
}

fn raise(list: &mut GoResourceList, other: &GoResourceList) -> Result<(), DumpError> {
    for (name, quantity) in other {
        let mut quantity = quantity.clone();
        let is_more = match list.get(name) {
            Some(known) => {
                let order = quantity.compare(known).ok_or_else(GoQuantity::invalid)?;
                order == Ordering::Greater
            }
            None => true,
        };
        if is_more {
            list.insert(name.clone(), quantity);
        }
    }
    Ok(())
}
