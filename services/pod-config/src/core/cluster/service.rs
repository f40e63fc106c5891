//! Services as needed for the environment variables of containers.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A port of a Service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServicePortSummary {
    /// Port name, or empty.
    pub name: String,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    /// Port number.
    pub port: u32,
}

/// A Service with a cluster IP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceSummary {
    /// Service namespace.
    pub namespace: String,
    /// Service name.
    pub name: String,
    /// Cluster IP.
    pub cluster_ip: String,
    /// Ports in the order of the spec: the first one is `…_SERVICE_PORT`.
    pub ports: Vec<ServicePortSummary>,
}

/// Namespace and name of a Service.
pub fn key(service: &Value) -> Option<(String, String)> {
    let text = |field: &str| service.pointer(field).and_then(Value::as_str);
    let (namespace, name) = (text("/metadata/namespace")?, text("/metadata/name")?);
    Some((namespace.to_owned(), name.to_owned()))
}

/// The Service; `None` without a cluster IP (headless, or `ExternalName`).
pub fn summarize(service: &Value) -> Option<ServiceSummary> {
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
        Some(ServicePortSummary {
            name: text(port, "name", ""),
            protocol: text(port, "protocol", "TCP"),
            port: u32::try_from(port.get("port")?.as_u64()?).ok()?,
        })
    });
    Some(ServiceSummary {
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
    fn services_without_cluster_ip_are_skipped() {
        let service = |ip: Value| {
            json!({
                "metadata": {"namespace": "a", "name": "s"},
                "spec": {"clusterIP": ip, "ports": [{"port": 80}, {"port": "odd"}]},
            })
        };
        let with = summarize(&service(json!("10.0.0.1"))).unwrap();
        assert_eq!((with.ports.len(), with.ports[0].port), (1, 80));
        assert_eq!(with.ports[0].protocol, "TCP");
        for without in [json!("None"), json!(""), json!(null)] {
            assert_eq!(summarize(&service(without)), None);
        }
    }
}
