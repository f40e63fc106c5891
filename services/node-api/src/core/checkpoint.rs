//! Requests for checkpoints, by upstream's rules and with its messages.

/// The timeout of a request in seconds: the last one of the query, zero without any.
///
/// # Errors
/// The message of a 404 response, as upstream.
pub(crate) fn timeout_seconds(query: &[(String, String)]) -> Result<i64, &'static str> {
    let mut given = query.iter().filter(|(name, _)| name == "timeout");
    let Some((_, text)) = given.next_back() else {
        return Ok(0);
    };
    text.parse()
        .map_err(|_| "cannot parse value of timeout parameter")
}

/// The message of a 500 response.
pub(crate) fn failed(namespace: &str, pod: &str, container: &str, cause: &str) -> String {
    format!("checkpointing of {namespace}/{pod}/{container} failed ({cause})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts() {
        let refused = Err("cannot parse value of timeout parameter");
        for (query, expected) in [
            (&[][..], Ok(0)),
            (&[("timeout", "30")], Ok(30)),
            (&[("timeout", "+30")], Ok(30)),
            // Refused later, by the client of the runtime.
            (&[("timeout", "-30")], Ok(-30)),
            (&[("timeout", "x"), ("timeout", "7"), ("other", "y")], Ok(7)),
            (&[("timeout", "7"), ("timeout", "x")], refused),
            (&[("timeout", "")], refused),
            (&[("timeout", "1.5")], refused),
            (&[("timeout", "30s")], refused),
            (&[("timeout", "9223372036854775808")], refused),
        ] {
            let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
            let pairs: Vec<(String, String)> = query.iter().map(owned).collect();
            assert_eq!(timeout_seconds(&pairs), expected, "{query:?}");
        }
    }
}
