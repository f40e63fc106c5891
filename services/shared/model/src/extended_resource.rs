//! Names of extended resources: those that are not Kubernetes' own, as device plugins and
//! administrators add them.

/// The longest prefix and the longest name after it.
const MAX_PREFIX: usize = 253;
const MAX_NAME: usize = 63;
/// The prefix of an extended resource in a quota, which must leave the name valid.
const QUOTA_PREFIX: &str = "requests.";

/// Whether a resource is an extended one, as upstream's `IsExtendedResourceName`: it has a domain
/// other than Kubernetes' own, and is a qualified name with that prefix in a quota, too.
pub fn is_extended(name: &str) -> bool {
    let Some((domain, rest)) = name.split_once('/') else {
        return false;
    };
    !name.contains("kubernetes.io/")
        && !name.starts_with(QUOTA_PREFIX)
        && is_subdomain(domain)
        && QUOTA_PREFIX.len() + domain.len() <= MAX_PREFIX
        && is_name(rest)
}

/// Whether a domain is a DNS subdomain as of RFC 1123, in lower case.
fn is_subdomain(domain: &str) -> bool {
    domain.split('.').all(|label| {
        let bytes = label.as_bytes();
        let inside = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-';
        bytes.iter().all(inside)
            && bytes.first().is_some_and(|b| *b != b'-')
            && bytes.last().is_some_and(|b| *b != b'-')
    })
}

fn is_name(name: &str) -> bool {
    let bytes = name.as_bytes();
    let inside = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    bytes.len() <= MAX_NAME
        && bytes.iter().all(inside)
        && bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extended_resources_have_a_domain_of_their_own() {
        for name in [
            "example.com/device",
            "a/b",
            "nvidia.com/gpu.shared",
            "x.y/A_1",
        ] {
            assert!(is_extended(name), "{name}");
        }
        let long = format!("example.com/{}", "a".repeat(64));
        let long_domain = format!("{}a/b", "a.".repeat(122));
        for name in [
            "cpu",
            "hugepages-2Mi",
            "kubernetes.io/x",
            "x.kubernetes.io/y",
            "requests.example.com/device",
            "Example.com/device",
            "example..com/device",
            "-a.com/device",
            "example.com/",
            "example.com/-a",
            "example.com/a/b",
            "/a",
            "",
            &long,
            &long_domain,
        ] {
            assert!(!is_extended(name), "{name}");
        }
    }
}
