/// Whether a line matches a pattern in which `*` matches any text.
pub fn matches(line: &str, pattern: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = line.strip_prefix(first) else {
        return false;
    };
    let Some(last) = parts.next_back() else {
        return rest.is_empty();
    };
    for part in parts {
        match rest.find(part) {
            Some(found) => rest = &rest[found + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// A text with everything that varies between runs blanked: ids, times, durations, addresses.
pub fn blank(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut word = String::new();
    for letter in text.chars().chain([' ']) {
        if letter.is_ascii_alphanumeric() || ".-_:+".contains(letter) {
            word.push(letter);
            continue;
        }
        out.push_str(&blank_word(&word));
        word.clear();
        out.push(letter);
    }
    out.pop();
    out
}

fn blank_word(word: &str) -> String {
    let core = word.trim_end_matches(['.', ':']);
    let rest = &word[core.len()..];
    let name = match core {
        _ if core.len() >= 40 && hex(core) => "ID",
        _ if core.starts_with("sha256:") && hex(&core[7..]) => "DIGEST",
        _ if is_uid(core) => "UID",
        _ if is_time(core) => "TIME",
        _ if is_duration(core) => "LONG",
        _ if is_pod_ip(core) => "IP",
        _ => return word.to_owned(),
    };
    let port = core.rsplit_once(':').filter(|_| name == "IP");
    match port {
        Some((_, port)) => format!("{name}:{port}{rest}"),
        None => format!("{name}{rest}"),
    }
}

fn hex(text: &str) -> bool {
    text.len() >= 12 && text.chars().all(|c| c.is_ascii_hexdigit())
}

fn is_uid(text: &str) -> bool {
    let lengths: Vec<_> = text.split('-').map(str::len).collect();
    lengths == [8, 4, 4, 4, 12] || lengths == [32] && hex(text)
}

fn is_time(text: &str) -> bool {
    text.len() >= 19 && text.as_bytes().get(10) == Some(&b'T') && text.starts_with("20")
}

fn is_duration(text: &str) -> bool {
    let number = ["ms", "µs", "s"]
        .iter()
        .find_map(|unit| text.strip_suffix(unit));
    number.is_some_and(|number| number.contains('.') && number.parse::<f64>().is_ok())
        || text
            .strip_suffix("ms")
            .is_some_and(|n| n.parse::<u64>().is_ok())
}

fn is_pod_ip(text: &str) -> bool {
    let address = text.rsplit_once(':').map_or(text, |(address, _)| address);
    address.starts_with("10.") && address.parse::<std::net::Ipv4Addr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_lines() {
        for (line, pattern, expected) in [
            ("abc", "abc", true),
            ("abc", "ab", false),
            ("abc", "ab*", true),
            ("abc", "*", true),
            ("", "*", true),
            ("abcbc", "a*bc", true),
            ("abcbd", "a*bc", false),
            ("ab", "ab*b", false),
            ("a-b-c", "a*b*c", true),
            ("a-c-b", "a*b*c", false),
        ] {
            assert_eq!(matches(line, pattern), expected, "{line} {pattern}");
        }
    }

    #[test]
    fn varying_parts_are_blanked() {
        let uid = "0f5a1c9e-6f1b-4f5e-9d1e-0a1b2c3d4e5f";
        for (text, blanked) in [
            (format!("pod main_default({uid})"), "pod main_default(UID)"),
            ("in 12ms (1.25s all)".to_owned(), "in LONG (LONG all)"),
            ("dial tcp 10.88.0.7:81: no".to_owned(), "dial tcp IP:81: no"),
            ("exit 137, 3 times".to_owned(), "exit 137, 3 times"),
        ] {
            assert_eq!(blank(&text), blanked);
        }
    }
}
