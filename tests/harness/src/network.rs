use std::fs;
use std::path::Path;

use crate::error::{HarnessError, file};
use crate::machine;

/// The bridge network of one run. The harness creates the bridge itself: pods reach each other and
/// the host, and the machine's forwarding and packet filter are not changed.
#[derive(Debug, Clone)]
pub struct Network {
    /// Name of the bridge and of the network.
    pub bridge: String,
    /// The first three octets of its /22, which has addresses for a thousand pods: `10.201.8`.
    pub prefix: String,
    /// The bridge plugin masquerades what a pod sends out of the network: each start and deletion runs
    /// iptables several times, as on many real nodes.
    masquerade: bool,
}

impl Network {
    /// Chooses a free network, creates the bridge and writes the CNI configuration into `conf_dir`.
    /// `seed` spreads concurrent runs over the networks. With `masquerade`, the bridge plugin adds rules
    /// to the packet filter for each pod.
    ///
    /// # Errors
    /// Fails if no network is free or the bridge cannot be created.
    pub fn create(
        bridge: &str,
        seed: u32,
        masquerade: bool,
        conf_dir: &Path,
        data_dir: &Path,
    ) -> Result<Self, HarnessError> {
        let routes = ip(&["route", "show", "table", "all"]).or_else(|_| ip(&["route"]))?;
        let prefix = free_prefix(&routes, seed).ok_or(HarnessError::NoSubnet)?;
        let network = Self {
            bridge: bridge.to_owned(),
            prefix,
            masquerade,
        };
        ip(&["link", "add", bridge, "type", "bridge"])?;
        ip(&[
            "addr",
            "add",
            &format!("{}.1/22", network.prefix),
            "dev",
            bridge,
        ])?;
        ip(&["link", "set", bridge, "up"])?;
        let path = conf_dir.join("10-polylet.conflist");
        let text = network.configuration(data_dir).to_string();
        file("write", &path, fs::write(&path, text))?;
        Ok(network)
    }

    fn configuration(&self, data_dir: &Path) -> serde_json::Value {
        let range = serde_json::json!({
            "subnet": format!("{}.0/22", self.prefix), "gateway": format!("{}.1", self.prefix),
        });
        serde_json::json!({
            "cniVersion": "0.4.0",
            "name": self.bridge,
            "plugins": [
                {
                    "type": "bridge", "bridge": self.bridge, "isGateway": false, "ipMasq": self.masquerade,
                    "hairpinMode": true,
                    "ipam": {
                        "type": "host-local", "dataDir": data_dir, "ranges": [[range]],
                        "routes": [{ "dst": "0.0.0.0/0" }],
                    },
                },
                { "type": "portmap", "capabilities": { "portMappings": true } },
            ],
        })
    }
}

/// Whether the bridge exists.
pub fn bridge_exists(bridge: &str) -> bool {
    Path::new("/sys/class/net").join(bridge).exists()
}

/// Removes the bridge and the network's packet filter rules and address records.
pub fn remove(bridge: &str) {
    if bridge_exists(bridge) {
        // The caller checks afterwards that the bridge is gone.
        let _ = ip(&["link", "del", bridge]);
    }
    remove_rules(bridge);
    for entry in fs::read_dir("/var/lib/cni/results")
        .into_iter()
        .flatten()
        .flatten()
    {
        if entry
            .file_name()
            .to_string_lossy()
            .starts_with(&format!("{bridge}-"))
        {
            // A remaining record is harmless.
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Removes the portmap plugin's rules and chains, which remain if CNI DEL was not called. Rules are
/// deleted by number, with a new listing after each: their comments cannot be quoted back.
fn remove_rules(network: &str) {
    let (Some(save), Some(iptables)) = (
        machine::program("iptables-save"),
        machine::program("iptables"),
    ) else {
        return;
    };
    let nat = |args: &[&str]| machine::run(&iptables, &[&["-t", "nat"], args].concat()).is_ok();
    let mark = format!("\"{network}\\\"");
    for _ in 0..1000 {
        let Ok(rules) = machine::run(&save, &["-t", "nat"]) else {
            return;
        };
        let Some(rule) = rules.lines().find(|line| line.contains(&mark)) else {
            return;
        };
        let Some(chain) = rule.split_whitespace().nth(1) else {
            return;
        };
        let in_chain = format!("-A {chain} ");
        let before = rules.lines().filter(|line| line.starts_with(&in_chain));
        let number = before.take_while(|line| *line != rule).count() + 1;
        if !nat(&["-D", chain, &number.to_string()]) {
            return;
        }
        let target = rule
            .split_whitespace()
            .find(|word| word.starts_with("CNI-DN-"));
        if let Some(target) = target.filter(|target| *target != chain) {
            nat(&["-F", target]);
            nat(&["-X", target]);
        }
    }
}

/// An additional address of this machine on the loopback interface, removed on drop.
#[derive(Debug)]
pub struct ExtraAddress(String);

impl ExtraAddress {
    /// Adds an address.
    ///
    /// # Errors
    /// Fails if the address cannot be added.
    pub fn add(address: &str) -> Result<Self, HarnessError> {
        let prefix = format!("{address}/32");
        ip(&["addr", "add", &prefix, "dev", "lo"])?;
        Ok(Self(prefix))
    }
}

impl Drop for ExtraAddress {
    fn drop(&mut self) {
        let _ = ip(&["addr", "del", &self.0, "dev", "lo"]);
    }
}

/// Uses busybox's `ip`: minimal systems need no further package.
fn ip(args: &[&str]) -> Result<String, HarnessError> {
    let busybox = machine::static_busybox().or_else(|| machine::program("busybox"));
    match (machine::program("ip"), busybox) {
        (Some(ip), _) => machine::run(&ip, args),
        (None, Some(busybox)) => machine::run(&busybox, &[&["ip"], args].concat()),
        (None, None) => Err(HarnessError::NoApt {
            missing: "iproute2".to_owned(),
        }),
    }
}

fn free_prefix(routes: &str, seed: u32) -> Option<String> {
    let is_free = |second: u32, third: u32| {
        (third..third + 4).all(|third| !routes.contains(&format!("10.{second}.{third}.")))
    };
    (0..49 * 62_u32)
        .map(|step| seed.wrapping_add(step))
        .map(|n| (201 + n % 49, n / 49 % 62 * 4))
        .find(|(second, third)| is_free(*second, *third))
        .map(|(second, third)| format!("10.{second}.{third}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_used_network_is_not_chosen() {
        let first = free_prefix("default via 192.0.2.1", 7).unwrap();
        let second = free_prefix(&format!("{first}.0/22 dev x"), 7).unwrap();
        assert_ne!(first, second);
        // Part of it alone is used.
        let (net, third) = first.rsplit_once('.').unwrap();
        let part = format!("{net}.{}.0/24 dev x", third.parse::<u32>().unwrap() + 3);
        assert_eq!(free_prefix(&part, 7).unwrap(), second);
    }
}
