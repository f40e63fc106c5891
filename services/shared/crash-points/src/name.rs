//! Names of effects that are the same in each run of a scenario.

/// The number of the last components of a path that are part of a name.
const COMPONENTS: usize = 5;
/// A word of hexadecimal digits that is at least this long is an id.
const ID_LENGTH: usize = 8;

/// The end of a path, with `*` for ids and numbers.
pub(crate) fn of_path(path: &str) -> String {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let start = parts.len().saturating_sub(COMPONENTS);
    let parts: Vec<String> = parts
        .iter()
        .skip(start)
        .map(|part| without_ids(part))
        .collect();
    parts.join("/")
}

fn without_ids(part: &str) -> String {
    let mut name = String::new();
    let is_hex = |c: char| c.is_ascii_hexdigit() || c == '-';
    let mut rest = part;
    while let Some(first) = rest.chars().next() {
        let hex = rest.find(|c| !is_hex(c)).unwrap_or(rest.len());
        let digits = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        let word = rest.get(..hex).unwrap_or_default();
        let is_id = hex >= ID_LENGTH && word.contains(|c: char| c.is_ascii_digit());
        let length = if is_id { hex } else { digits };
        if length > 0 {
            name.push('*');
            rest = rest.get(length..).unwrap_or_default();
        } else {
            // A space separates the fields of a line.
            name.push(if first.is_whitespace() { '_' } else { first });
            rest = rest.get(first.len_utf8()..).unwrap_or_default();
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_numbers_are_not_part_of_names() {
        for (path, name) in [
            ("/run/polylet/pleg", "run/polylet/pleg"),
            (
                "/tmp/a/kubelet/pods/0f9c4be2a6dd4f30b6d1d2ad4ee3a3a1/volumes/x/..2026_11_23",
                "pods/*/volumes/x/..*_*_*",
            ),
            (
                "logs/default_start-17-node_3b2c1c70-1f0a-4c55-9d4e-1a2b3c4d5e6f/main/0.log",
                "logs/default_start-*-node_*/main/*.log",
            ),
            ("/a b", "a_b"),
            ("", ""),
        ] {
            assert_eq!(of_path(path), name);
        }
    }
}
