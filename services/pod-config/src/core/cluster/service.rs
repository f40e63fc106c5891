//! Services, as far as the variables of containers need them.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A port of a Service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Port {
    /// Its name, or nothing.
    pub name: String,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    /// Its number.
    pub port: u32,
}

/// A Service that has an address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reduced {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Its address in the cluster.
    pub cluster_ip: String,
    /// In the order of the Service: the first one is the one of `…_SERVICE_PORT`.
    pub ports: Vec<Port>,
}

/// Namespace and name.
pub fn key(service: &Value) -> Option<(String, String)> {
    let text = |field: &str| service.pointer(field).and_then(Value::as_str);
    let (namespace, name) = (text("/metadata/namespace")?, text("/metadata/name")?);
    Some((namespace.to_owned(), name.to_owned()))
}

/// The Service, or nothing when it has no address (headless, or a name of another place).
pub fn reduce(service: &Value) -> Option<Reduced> {
    let (namespace, name) = key(service)?;
    let spec = service.get("spec")?;
    let cluster_ip = spec.get("clusterIP")?.as_str()?;
    if cluster_ip.is_empty() || cluster_ip == "None" {
        return None;
    }
    let ports = spec.get("ports").and_then(Value::as_array);
    let text = |port: &Value, field: &str, or: &str| {
        let text = port.get(field).and_then(Value::as_str);
        text.unwrap_or(or).to_owned()
    };
    let ports = ports.into_iter().flatten().filter_map(|port| {
        Some(Port {
            name: text(port, "name", ""),
            protocol: text(port, "protocol", "TCP"),
            port: u32::try_from(port.get("port")?.as_u64()?).ok()?,
        })
    });
    Some(Reduced {
        namespace,
        name,
        cluster_ip: cluster_ip.to_owned(),
        ports: ports.collect(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_services_with_an_address_count() {
        let service = |ip: Value| {
            json!({
                "metadata": {"namespace": "a", "name": "s"},
                "spec": {"clusterIP": ip, "ports": [{"port": 80}, {"port": "odd"}]},
            })
        };
        let with = reduce(&service(json!("10.0.0.1"))).unwrap();
        assert_eq!((with.ports.len(), with.ports[0].port), (1, 80));
        assert_eq!(with.ports[0].protocol, "TCP");
        for without in [json!("None"), json!(""), json!(null)] {
            assert_eq!(reduce(&service(without)), None);
        }
    }
}
