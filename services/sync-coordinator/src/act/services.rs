//! The Services that containers are told of by variables: followed for the whole process.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::time::Duration;

use futures::StreamExt;
use polylet_kit::{Ctx, follow};
use polylet_model::Manifest;
use polylet_watch::Update;
use polylet_wire::podconfig::v1::Service;
use tokio::sync::watch;

/// How long a container's making waits for the first word of Services before it fails.
const PATIENCE: Duration = Duration::from_secs(10);
/// Told to every pod.
const MASTER: (&str, &str) = ("default", "kubernetes");

type Known = BTreeMap<(String, String), Service>;

/// What is known of them; `None` before the first word.
pub struct Services(watch::Sender<Option<Known>>);

impl Default for Services {
    fn default() -> Self {
        Services(watch::Sender::new(None))
    }
}

impl Services {
    /// Follows them for as long as the process lives.
    pub async fn follow(&self, ctx: Ctx) {
        let mut updates = follow::podconfig::services(&ctx);
        let mut known = Known::new();
        let mut heard = false;
        let drain = ctx.drain();
        loop {
            let update = tokio::select! {
                update = updates.next() => update,
                () = drain.cancelled() => return,
            };
            match update {
                Some(Update::Upsert(key, service)) => drop(known.insert(key, service)),
                Some(Update::Remove(key)) => drop(known.remove(&key)),
                Some(Update::Synced) => heard = true,
                Some(Update::Stale(_)) => {}
                None => return,
            }
            if heard {
                self.0.send_replace(Some(known.clone()));
            }
        }
    }

    /// The variables of a pod's containers. A pod of the cluster waits until Services have been
    /// heard of; upstream's words when that takes too long.
    pub async fn variables(&self, manifest: &Manifest) -> Result<BTreeMap<String, String>, String> {
        let mut watching = self.0.subscribe();
        if !manifest.is_static() {
            let heard = watching.wait_for(Option::is_some);
            let heard = tokio::time::timeout(PATIENCE, heard).await;
            if !matches!(heard, Ok(Ok(_))) {
                return Err(
                    "services have not yet been read at least once, cannot construct envvars"
                        .to_owned(),
                );
            }
        }
        let links = manifest.spec().enable_service_links != Some(false);
        let known = watching.borrow();
        Ok(of(known.iter().flatten(), manifest.namespace(), links))
    }
}

fn of<'a>(
    services: impl Iterator<Item = (&'a (String, String), &'a Service)>,
    namespace: &str,
    links: bool,
) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let mut own = Vec::new();
    for (key, service) in services {
        if (key.0.as_str(), key.1.as_str()) == MASTER {
            add(&mut all, service);
        } else if key.0 == namespace && links {
            own.push(service);
        }
    }
    // A Service of the pod's own namespace stands before the master's of the same name.
    for service in own {
        add(&mut all, service);
    }
    all
}

fn variable(name: &str) -> String {
    name.replace('-', "_").to_uppercase()
}

fn add(all: &mut BTreeMap<String, String>, service: &Service) {
    let (name, ip) = (variable(&service.name), &service.cluster_ip);
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
            let key = format!("{name}_SERVICE_PORT_{}", variable(&port.name));
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

    fn known(services: &[Service]) -> Known {
        let key = |s: &Service| (s.namespace.clone(), s.name.clone());
        services.iter().map(|s| (key(s), s.clone())).collect()
    }

    #[test]
    fn upstreams_variables() {
        let ports = [("", "TCP", 8080), ("p-two", "UDP", 53)];
        let known = known(&[service("ns", "my-web", "1.2.3.4", &ports)]);
        let all = of(known.iter(), "ns", true);
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
    fn the_master_is_told_to_all_and_others_to_their_namespace() {
        let port = [("https", "TCP", 443)];
        let known = known(&[
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
            let all = of(known.iter(), namespace, links);
            let told = all.keys().filter_map(|k| k.strip_suffix("_SERVICE_HOST"));
            assert_eq!(told.collect::<Vec<_>>(), hosts, "{namespace} {links}");
        }
        let all = of(known.iter(), "ns", true);
        assert_eq!(all["WEB_PORT"], "tcp://[fd00::1]:443");
    }
}
