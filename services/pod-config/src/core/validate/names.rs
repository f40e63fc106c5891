//! Formats of names. An error completes the sentence "NAME is …"

type NameResult = Result<(), &'static str>;

fn edges(name: &str, ok: fn(u8) -> bool) -> bool {
    let bytes = name.as_bytes();
    bytes.first().is_some_and(|b| ok(*b)) && bytes.last().is_some_and(|b| ok(*b))
}

fn lower(b: u8) -> bool {
    b.is_ascii_lowercase() || b.is_ascii_digit()
}

fn alnum(b: u8) -> bool {
    b.is_ascii_alphanumeric()
}

/// An RFC 1123 label.
pub fn label(name: &str) -> NameResult {
    if name.len() <= 63 && edges(name, lower) && name.bytes().all(|b| lower(b) || b == b'-') {
        return Ok(());
    }
    Err(
        "not a DNS label: at most 63 lower-case letters, digits or '-', with a letter or digit at both ends",
    )
}

/// An RFC 1123 subdomain.
pub fn subdomain(name: &str) -> NameResult {
    let part = |p: &str| edges(p, lower) && p.bytes().all(|b| lower(b) || b == b'-');
    if name.len() <= 253 && name.split('.').all(part) {
        return Ok(());
    }
    Err(
        "not a DNS name: at most 253 lower-case letters, digits, '-' or '.', with a letter or digit at both ends of each part",
    )
}

/// An IANA service name, the format of port names.
pub fn port(name: &str) -> NameResult {
    let valid =
        name.len() <= 15 && edges(name, lower) && name.bytes().all(|b| lower(b) || b == b'-');
    if valid && !name.contains("--") && name.bytes().any(|b| b.is_ascii_lowercase()) {
        return Ok(());
    }
    Err(
        "not a port name: at most 15 lower-case letters, digits or single '-', with at least one letter and no '-' at either end",
    )
}

/// A qualified name `[prefix/]name`, the format of label and annotation keys.
pub fn qualified(name: &str) -> NameResult {
    let (prefix, rest) = match name.split_once('/') {
        Some((prefix, rest)) => (Some(prefix), rest),
        None => (None, name),
    };
    let valid = rest.len() <= 63
        && edges(rest, alnum)
        && rest
            .bytes()
            .all(|b| alnum(b) || matches!(b, b'-' | b'_' | b'.'));
    if valid && prefix.is_none_or(|p| subdomain(p).is_ok()) {
        return Ok(());
    }
    Err(
        "not a qualified name: an optional DNS name and '/', then at most 63 letters, digits, '-', '_' or '.', with a letter or digit at both ends",
    )
}

/// The value of a label.
pub fn label_value(value: &str) -> NameResult {
    let valid = value.len() <= 63
        && edges(value, alnum)
        && value
            .bytes()
            .all(|b| alnum(b) || matches!(b, b'-' | b'_' | b'.'));
    if value.is_empty() || valid {
        return Ok(());
    }
    Err(
        "not a label value: at most 63 letters, digits, '-', '_' or '.', with a letter or digit at both ends",
    )
}

/// A key of a Secret or ConfigMap.
pub fn config_key(key: &str) -> NameResult {
    let valid = !key.is_empty()
        && key.len() <= 253
        && key
            .bytes()
            .all(|b| alnum(b) || matches!(b, b'-' | b'_' | b'.'));
    if valid && key != "." && !key.starts_with("..") {
        return Ok(());
    }
    Err("not a valid key: at most 253 letters, digits, '-', '_' or '.', and not starting with '..'")
}

/// The name of an environment variable, by the API server's relaxed rule.
pub fn env(name: &str) -> NameResult {
    if !name.is_empty()
        && name
            .bytes()
            .all(|b| (0x20..=0x7e).contains(&b) && b != b'=')
    {
        return Ok(());
    }
    Err("not a variable name: printable ASCII characters without '='")
}

/// The name of an HTTP header.
pub fn header(name: &str) -> NameResult {
    if !name.is_empty() && name.bytes().all(|b| alnum(b) || b == b'-') {
        return Ok(());
    }
    Err("not an HTTP header name: letters, digits or '-'")
}

/// A sysctl, with dots or slashes.
pub fn sysctl(name: &str) -> NameResult {
    let part = |p: &str| edges(p, lower) && p.bytes().all(|b| lower(b) || matches!(b, b'-' | b'_'));
    if name.len() <= 253 && name.split(['.', '/']).all(part) {
        return Ok(());
    }
    Err("not a sysctl name: parts of lower-case letters, digits, '-' or '_' between '.' or '/'")
}

/// A path below a volume: relative, without `..`.
pub fn local_path(path: &str) -> NameResult {
    if path.starts_with('/') {
        return Err("absolute: expected a path relative to the volume");
    }
    without_parent(path)
}

/// A path without the component `..`.
pub fn without_parent(path: &str) -> NameResult {
    if path.split('/').any(|part| part == "..") {
        return Err("not allowed: it has the component '..'");
    }
    Ok(())
}
