//! A node whose address changes its family while pods run.

use core::net::IpAddr;

use k8s_openapi::api::core::v1::PodStatus;

/// The message of upstream's event `HostIPsIPFamilyMismatch`: a cloud provider has replaced the address
/// that the node was registered with by one of the other family.
pub(crate) fn mismatch(before: Option<&PodStatus>, now: &PodStatus) -> Option<String> {
    let (old, new) = (before?.host_ip.as_deref()?, now.host_ip.as_deref()?);
    let (old_family, new_family) = (family(old)?, family(new)?);
    (old_family != new_family).then(|| {
        format!(
            "Kubelet detected an IPv{old_family} node IP ({old}), but the cloud provider selected an \
             IPv{new_family} node IP ({new}); pass an explicit `--node-ip` to kubelet to fix this."
        )
    })
}

fn family(ip: &str) -> Option<u8> {
    let ip: IpAddr = ip.parse().ok()?;
    Some(if ip.is_ipv4() { 4 } else { 6 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_another_family_is_a_mismatch() {
        let status = |ip: Option<&str>| PodStatus {
            host_ip: ip.map(str::to_owned),
            ..PodStatus::default()
        };
        let found = |before: Option<&str>, now| mismatch(Some(&status(before)), &status(now));
        let (ipv4, ipv6) = (Some("192.0.2.7"), Some("2001:db8::7"));
        assert_eq!(
            found(ipv4, ipv6).unwrap(),
            "Kubelet detected an IPv4 node IP (192.0.2.7), but the cloud provider selected an IPv6 node \
             IP (2001:db8::7); pass an explicit `--node-ip` to kubelet to fix this."
        );
        assert!(found(ipv6, ipv4).is_some());
        for (before, now) in [
            (ipv4, Some("192.0.2.8")),
            (ipv6, ipv6),
            (None, ipv6),
            (ipv4, None),
            (Some(""), ipv6),
        ] {
            assert_eq!(found(before, now), None, "{before:?} {now:?}");
        }
        assert_eq!(mismatch(None, &status(ipv6)), None);
    }
}
