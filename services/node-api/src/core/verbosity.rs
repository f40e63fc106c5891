//! The log verbosity that a client sets, by upstream's rules and with its messages.

/// Reads a verbosity, as Go's `strconv` does.
///
/// # Errors
/// The message of a 400 response.
pub(crate) fn parse(text: &str) -> Result<u32, String> {
    let unsigned = |cause| format!("strconv.ParseUint: parsing {text:?}: {cause}");
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(unsigned("invalid syntax"));
    }
    let verbosity: u32 = text.parse().map_err(|_| unsigned("value out of range"))?;
    // klog has a signed number.
    if i32::try_from(verbosity).is_err() {
        return Err(format!(
            "failed set klog.logging.verbosity {text}: strconv.ParseInt: parsing {text:?}: value out of range"
        ));
    }
    Ok(verbosity)
}

/// The message when every service has the verbosity: the number as the client wrote it.
pub(crate) fn is_set(text: &str) -> String {
    format!("successfully set klog.logging.verbosity to {text}")
}

/// The message when some services, each with the reason, have not.
pub(crate) fn is_partly_set(text: &str, failed: &[(&str, String)]) -> String {
    let failed = failed.iter();
    let failed: Vec<_> = failed
        .map(|(service, cause)| format!("{service} ({cause})"))
        .collect();
    format!(
        "failed set klog.logging.verbosity {text} in {}; the other services have it",
        failed.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbosities() {
        for (text, expected) in [("0", 0), ("007", 7), ("2147483647", 2_147_483_647)] {
            assert_eq!(parse(text), Ok(expected), "{text}");
        }
        for (text, message) in [
            ("", r#"strconv.ParseUint: parsing "": invalid syntax"#),
            ("abc", r#"strconv.ParseUint: parsing "abc": invalid syntax"#),
            ("-1", r#"strconv.ParseUint: parsing "-1": invalid syntax"#),
            ("+1", r#"strconv.ParseUint: parsing "+1": invalid syntax"#),
            ("1\n", r#"strconv.ParseUint: parsing "1\n": invalid syntax"#),
            (
                "4294967296",
                r#"strconv.ParseUint: parsing "4294967296": value out of range"#,
            ),
            (
                "2147483648",
                "failed set klog.logging.verbosity 2147483648: strconv.ParseInt: parsing \"2147483648\": value out of range",
            ),
        ] {
            assert_eq!(parse(text), Err(message.to_owned()), "{text:?}");
        }
    }

    #[test]
    fn messages() {
        assert_eq!(
            is_set("04"),
            "successfully set klog.logging.verbosity to 04"
        );
        let failed = [("pleg", "no".to_owned()), ("eviction", "late".to_owned())];
        assert_eq!(
            is_partly_set("4", &failed),
            "failed set klog.logging.verbosity 4 in pleg (no), eviction (late); the other services have it"
        );
    }
}
