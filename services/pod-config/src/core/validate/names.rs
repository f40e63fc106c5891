//! Forms of names. Each check answers with what the name is, when it is wrong: "is not …".

type Checked = Result<(), &'static str>;

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

/// RFC 1123 label.
pub fn label(name: &str) -> Checked {
    if name.len() <= 63 && edges(name, lower) && name.bytes().all(|b| lower(b) || b == b'-') {
        return Ok(());
    }
    Err(
        "not a DNS label: at most 63 lower-case letters, digits or '-', with a letter or digit at both ends",
    )
}

/// RFC 1123 subdomain.
pub fn subdomain(name: &str) -> Checked {
    let part = |p: &str| edges(p, lower) && p.bytes().all(|b| lower(b) || b == b'-');
    if name.len() <= 253 && name.split('.').all(part) {
        return Ok(());
    }
    Err(
        "not a DNS name: at most 253 lower-case letters, digits, '-' or '.', with a letter or digit at both ends of each part",
    )
}

/// IANA service name, as ports have them.
pub fn port(name: &str) -> Checked {
    let form =
        name.len() <= 15 && edges(name, lower) && name.bytes().all(|b| lower(b) || b == b'-');
    if form && !name.contains("--") && name.bytes().any(|b| b.is_ascii_lowercase()) {
        return Ok(());
    }
    Err(
        "not a port name: at most 15 lower-case letters, digits or single '-', one letter at least, none of '-' at the ends",
    )
}

/// `[prefix/]name` as label and annotation keys have it.
pub fn qualified(name: &str) -> Checked {
    let (prefix, rest) = match name.split_once('/') {
        Some((prefix, rest)) => (Some(prefix), rest),
        None => (None, name),
    };
    let form = rest.len() <= 63
        && edges(rest, alnum)
        && rest
            .bytes()
            .all(|b| alnum(b) || matches!(b, b'-' | b'_' | b'.'));
    if form && prefix.is_none_or(|p| subdomain(p).is_ok()) {
        return Ok(());
    }
    Err(
        "not a qualified name: an optional DNS name and '/', then at most 63 letters, digits, '-', '_' or '.', with a letter or digit at both ends",
    )
}

/// Value of a label.
pub fn label_value(value: &str) -> Checked {
    let form = value.len() <= 63
        && edges(value, alnum)
        && value
            .bytes()
            .all(|b| alnum(b) || matches!(b, b'-' | b'_' | b'.'));
    if value.is_empty() || form {
        return Ok(());
    }
    Err(
        "not a label value: at most 63 letters, digits, '-', '_' or '.', with a letter or digit at both ends",
    )
}

/// Key of a Secret or ConfigMap.
pub fn config_key(key: &str) -> Checked {
    let form = !key.is_empty()
        && key.len() <= 253
        && key
            .bytes()
            .all(|b| alnum(b) || matches!(b, b'-' | b'_' | b'.'));
    if form && key != "." && !key.starts_with("..") {
        return Ok(());
    }
    Err("not a valid key: at most 253 letters, digits, '-', '_' or '.', and no '..' at its start")
}

/// Name of an environment variable: upstream's relaxed rule.
pub fn env(name: &str) -> Checked {
    if !name.is_empty()
        && name
            .bytes()
            .all(|b| (0x20..=0x7e).contains(&b) && b != b'=')
    {
        return Ok(());
    }
    Err("not a name of a variable: printable ASCII characters without '='")
}

/// Header of an HTTP request.
pub fn header(name: &str) -> Checked {
    if !name.is_empty() && name.bytes().all(|b| alnum(b) || b == b'-') {
        return Ok(());
    }
    Err("not an HTTP header name: letters, digits or '-'")
}

/// Sysctl, with dots or slashes.
pub fn sysctl(name: &str) -> Checked {
    let part = |p: &str| edges(p, lower) && p.bytes().all(|b| lower(b) || matches!(b, b'-' | b'_'));
    if name.len() <= 253 && name.split(['.', '/']).all(part) {
        return Ok(());
    }
    Err("not a sysctl name: parts of lower-case letters, digits, '-' or '_' between '.' or '/'")
}

/// A path below a volume: relative, and never upwards.
pub fn local_path(path: &str) -> Checked {
    if path.starts_with('/') {
        return Err("absolute: a path relative to the volume was expected");
    }
    no_upwards(path)
}

/// No part of the path is `..`.
pub fn no_upwards(path: &str) -> Checked {
    if path.split('/').any(|part| part == "..") {
        return Err("leading upwards: '..' is not allowed");
    }
    Ok(())
}
