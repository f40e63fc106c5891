//! Hashes that are the same on every machine and in every version.

use k8s_openapi::api::core::v1::Container;

/// FNV-1a with 32 bits.
pub fn fnv1a_32(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
    })
}

/// FNV-1 (multiply first) with 32 bits, the variant that Go calls `New32`.
pub fn fnv1_32(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5_u32, |hash, byte| {
        hash.wrapping_mul(0x0100_0193) ^ u32::from(*byte)
    })
}

/// FNV-1a with 128 bits.
pub fn fnv1a_128(bytes: &[u8]) -> u128 {
    let mut hash = Fnv1a128::default();
    hash.update(bytes);
    hash.finish()
}

/// FNV-1a with 128 bits of bytes that come in pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fnv1a128(u128);

impl Default for Fnv1a128 {
    fn default() -> Self {
        Self(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d)
    }
}

impl Fnv1a128 {
    /// Hashes more bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
        self.0 = bytes.iter().fold(self.0, |hash, byte| {
            (hash ^ u128::from(*byte)).wrapping_mul(PRIME)
        });
    }

    /// The hash of all bytes so far.
    pub fn finish(self) -> u128 {
        self.0
    }
}

/// The hash that changes when a container has to be recreated: of its name and image, and nothing
/// else. The same as upstream's, so that a node can change its agent without restarting containers.
pub fn container_hash(container: &Container) -> u32 {
    let json = format!(
        "{{\"image\":{},\"name\":{}}}",
        go_json_string(container.image.as_deref().unwrap_or_default()),
        go_json_string(&container.name),
    );
    // Upstream hashes Go's dump of the byte slice, not the bytes themselves.
    let numbers: Vec<String> = json.bytes().map(|b| b.to_string()).collect();
    fnv1a_32(format!("([]uint8)[{}]", numbers.join(" ")).as_bytes())
}

/// The same in hex, the form of the container's annotation.
pub fn container_hash_annotation(spec: &Container) -> String {
    format!("{:x}", container_hash(spec))
}

/// Go's encoder escapes characters special to HTML; serde_json does not.
fn go_json_string(text: &str) -> String {
    serde_json::Value::from(text)
        .to_string()
        .replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str, image: &str) -> Container {
        Container {
            name: name.to_owned(),
            image: Some(image.to_owned()),
            args: Some(vec!["ignored".to_owned()]),
            ..Container::default()
        }
    }

    #[test]
    fn container_hash_as_upstream() {
        // The constant of upstream's own test.
        assert_eq!(
            container_hash(&named("test_container", "foo/image:v1")),
            0x8e45_cbd0
        );
        assert_eq!(
            container_hash_annotation(&named("test_container", "foo/image:v1")),
            "8e45cbd0"
        );
    }

    #[test]
    fn fnv_vectors() {
        assert_eq!(fnv1a_32(b""), 0x811c_9dc5);
        assert_eq!(fnv1a_32(b"a"), 0xe40c_292c);
        assert_eq!(fnv1_32(b"a"), 0x050c_5d7e);
        assert_eq!(
            fnv1a_128(b"foobar"),
            0x343e_1662_793c_64bf_6f0d_3597_ba44_6f18
        );
    }
}
