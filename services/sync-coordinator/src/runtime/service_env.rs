//! Environment variables for Services: the Services are watched as long as the process runs.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::time::Duration;

use futures::StreamExt;
use polylet_kit::{Ctx, follow};
use polylet_model::Manifest;
use polylet_watch::Update;
use polylet_wire::podconfig::v1::Service;
use tokio::sync::watch;

/// How long the creation of a container waits for the initial list of Services.
const SYNC_TIMEOUT: Duration = Duration::from_secs(10);
/// The Service that pods of all namespaces get variables for.
const KUBERNETES_SERVICE: (&str, &str) = ("default", "kubernetes");

/// Services by namespace and name.
type ServiceCache = BTreeMap<(String, String), Service>;

/// The cached Services; `None` before the initial list.
pub struct ServiceEnv(watch::Sender<Option<ServiceCache>>);

impl Default for ServiceEnv {
    fn default() -> Self {
        ServiceEnv(watch::Sender::new(None))
    }
}

impl ServiceEnv {
    /// Watches the Services until the process drains.
    pub async fn watch(&self, ctx: Ctx) {
        let mut updates = follow::podconfig::services(&ctx);
        let mut cache = ServiceCache::new();
        let mut synced = false;
        let drain = ctx.drain();
        loop {
            let update = tokio::select! {
                update = updates.next() => update,
                () = drain.cancelled() => return,
            };
            match update {
                Some(Update::Upsert(key, service)) => drop(cache.insert(key, service)),
                Some(Update::Remove(key)) => drop(cache.remove(&key)),
                Some(Update::Synced) => synced = true,
                Some(Update::Stale(_)) => {}
                None => return,
            }
            if synced {
                self.0.send_replace(Some(cache.clone()));
            }
        }
    }

    /// The variables of a pod's containers. A pod of the cluster waits for the initial list of
    /// Services.
    ///
    /// # Errors
    /// The kubelet's message when the list does not arrive in time.
    pub async fn variables(&self, manifest: &Manifest) -> Result<BTreeMap<String, String>, String> {
        let mut watching = self.0.subscribe();
        if !manifest.is_static() {
            let synced = watching.wait_for(Option::is_some);
            let synced = tokio::time::timeout(SYNC_TIMEOUT, synced).await;
            if !matches!(synced, Ok(Ok(_))) {
                return Err(
                    "services have not yet been read at least once, cannot construct envvars"
                        .to_owned(),
                );
            }
        }
        let links = manifest.spec().enable_service_links != Some(false);
        let cache = watching.borrow();
        Ok(variables(
            cache.iter().flatten(),
            manifest.namespace(),
            links,
        ))
    }
}

fn variables<'a>(
    services: impl Iterator<Item = (&'a (String, String), &'a Service)>,
    namespace: &str,
    links: bool,
) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let mut own = Vec::new();
    for (key, service) in services {
        if (key.0.as_str(), key.1.as_str()) == KUBERNETES_SERVICE {
            add(&mut all, service);
        } else if key.0 == namespace && links {
            own.push(service);
        }
    }
    // A Service of the pod's own namespace takes precedence over one with the same variables.
    for service in own {
        add(&mut all, service);
    }
    all
}

fn variable_name(name: &str) -> String {
    name.replace('-', "_").to_uppercase()
}

fn add(all: &mut BTreeMap<String, String>, service: &Service) {
    let (name, ip) = (variable_name(&service.name), &service.cluster_ip);
    let Some(first) = service.ports.first().filter(|_| !ip.is_empty()) else {
        return;
    };
    let mut set = |key: String, value: String| drop(all.insert(key, value));
    set(format!("{name}_SERVICE_HOST"), ip.clone());
    set(format!("{name}_SERVICE_PORT"), first.port.to_string());
    let host = match ip.parse::<Ipv6Addr>() {
        Ok(_) => format!("[{ip}]"),
        Err(_) => ip.clone(),
    };
    for (at, port) in service.ports.iter().enumerate() {
        let number = port.port;
        if !port.name.is_empty() {
            let key = format!("{name}_SERVICE_PORT_{}", variable_name(&port.name));
            set(key, number.to_string());
        }
        let protocol = match port.protocol.as_str() {
            "" => "tcp".to_owned(),
            named => named.to_lowercase(),
        };
        let url = format!("{protocol}://{host}:{number}");
        if at == 0 {
            set(format!("{name}_PORT"), url.clone());
        }
        let prefix = format!("{name}_PORT_{number}_{}", protocol.to_uppercase());
        set(prefix.clone(), url);
        set(format!("{prefix}_PROTO"), protocol);
        set(format!("{prefix}_PORT"), number.to_string());
        set(format!("{prefix}_ADDR"), ip.clone());
    }
}

#[cfg(test)]
mod tests {
    use polylet_wire::podconfig::v1::ServicePort;

    use super::*;

    fn service(namespace: &str, name: &str, ip: &str, ports: &[(&str, &str, u32)]) -> Service {
        let port = |(name, protocol, port): &(&str, &str, u32)| ServicePort {
            name: (*name).to_owned(),
            protocol: (*protocol).to_owned(),
            port: *port,
        };
        Service {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            cluster_ip: ip.to_owned(),
            ports: ports.iter().map(port).collect(),
        }
    }

    fn cache(services: &[Service]) -> ServiceCache {
        let key = |s: &Service| (s.namespace.clone(), s.name.clone());
        services.iter().map(|s| (key(s), s.clone())).collect()
    }

    #[test]
    fn variables_are_those_of_the_kubelet() {
        let ports = [("", "TCP", 8080), ("p-two", "UDP", 53)];
        let cache = cache(&[service("ns", "my-web", "1.2.3.4", &ports)]);
        let all = variables(cache.iter(), "ns", true);
        let lines: Vec<String> = all.iter().map(|(k, v)| format!("{k}={v}")).collect();
        assert_eq!(
            lines,
            [
                "MY_WEB_PORT=tcp://1.2.3.4:8080",
                "MY_WEB_PORT_53_UDP=udp://1.2.3.4:53",
                "MY_WEB_PORT_53_UDP_ADDR=1.2.3.4",
                "MY_WEB_PORT_53_UDP_PORT=53",
                "MY_WEB_PORT_53_UDP_PROTO=udp",
                "MY_WEB_PORT_8080_TCP=tcp://1.2.3.4:8080",
                "MY_WEB_PORT_8080_TCP_ADDR=1.2.3.4",
                "MY_WEB_PORT_8080_TCP_PORT=8080",
                "MY_WEB_PORT_8080_TCP_PROTO=tcp",
                "MY_WEB_SERVICE_HOST=1.2.3.4",
                "MY_WEB_SERVICE_PORT=8080",
                "MY_WEB_SERVICE_PORT_P_TWO=53",
            ]
        );
    }

    #[test]
    fn kubernetes_service_is_in_all_namespaces_and_others_in_their_own() {
        let port = [("https", "TCP", 443)];
        let cache = cache(&[
            service("default", "kubernetes", "10.0.0.1", &port),
            service("default", "other", "10.0.0.2", &port),
            service("ns", "web", "fd00::1", &port),
            service("ns", "nothing", "10.0.0.3", &[]),
        ]);
        for (namespace, links, hosts) in [
            ("ns", true, vec!["KUBERNETES", "WEB"]),
            ("ns", false, vec!["KUBERNETES"]),
            ("default", true, vec!["KUBERNETES", "OTHER"]),
        ] {
            let all = variables(cache.iter(), namespace, links);
            let found = all.keys().filter_map(|k| k.strip_suffix("_SERVICE_HOST"));
            assert_eq!(found.collect::<Vec<_>>(), hosts, "{namespace} {links}");
        }
        let all = variables(cache.iter(), "ns", true);
        assert_eq!(all["WEB_PORT"], "tcp://[fd00::1]:443");
    }
}
