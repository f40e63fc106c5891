//! Environment files in POSIX shell syntax, with single-quoted values only: `NAME='value'`.

/// A syntax error in an environment file, by line. The message contains nothing of the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnvFileError {
    /// Neither an assignment, a comment nor a blank line.
    #[error("invalid environment variable format at line {0}")]
    InvalidFormat(usize),
    /// `NAME ='value'`.
    #[error(
        "invalid environment variable format at line {0}: whitespace before '=' is not allowed"
    )]
    SpaceBeforeEquals(usize),
    /// `NAME=value`.
    #[error(
        "invalid environment variable format at line {0}: value must be enclosed in single quotes"
    )]
    Unquoted(usize),
    /// `NAME='value'more`.
    #[error(
        "invalid environment variable format at line {0}: unexpected content after closing quote"
    )]
    TrailingContent(usize),
    /// The closing quote is missing.
    #[error("invalid environment variable format at line {0}: unclosed quote")]
    Unclosed(usize),
}

/// The value of a variable, or `None` if the file does not set it. Nothing after the variable is
/// parsed.
pub fn value(text: &str, name: &str) -> Result<Option<String>, EnvFileError> {
    let (mut rest, mut line) = (text, 1);
    while !rest.is_empty() {
        let (full_line, after) = rest.split_once('\n').unwrap_or((rest, ""));
        let trimmed = full_line.trim_start_matches([' ', '\t']);
        if trimmed.trim().is_empty() || trimmed.starts_with('#') {
            (rest, line) = (after, line + 1);
            continue;
        }
        let indent = full_line.len() - trimmed.len();
        let (key, _) = trimmed
            .split_once('=')
            .filter(|(key, _)| !key.is_empty())
            .ok_or(EnvFileError::InvalidFormat(line))?;
        if key.ends_with([' ', '\t']) {
            return Err(EnvFileError::SpaceBeforeEquals(line));
        }
        let value = rest
            .get(indent + key.len() + 1..)
            .and_then(|value| value.strip_prefix('\''))
            .ok_or(EnvFileError::Unquoted(line))?;
        let (value, after) = value.split_once('\'').ok_or(EnvFileError::Unclosed(line))?;
        let last = line + value.matches('\n').count();
        let (tail, after) = after.split_once('\n').unwrap_or((after, ""));
        let comment = tail.trim_start_matches([' ', '\t', '\r']);
        let separated = comment.len() < tail.len();
        if !(comment.is_empty() || (separated && comment.starts_with('#'))) {
            return Err(EnvFileError::TrailingContent(last));
        }
        if key == name {
            return Ok(Some(value.to_owned()));
        }
        (rest, line) = (after, last + 1);
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn syntax_as_upstream() {
        use EnvFileError::*;
        let some = |text: &str| Ok(Some(text.to_owned()));
        for (text, name, expected) in [
            ("   A='1'\n\t\tB='2'\nC='3'\n", "B", some("2")),
            ("# c\n\nA='foo'\n   # d\n\nB='bar'\n", "B", some("bar")),
            ("A = '1'\nB='2'\n", "B", Err(SpaceBeforeEquals(1))),
            ("A='1'\n", "B", Ok(None)),
            ("A='foo#no'\n", "A", some("foo#no")),
            ("A='  foo  bar  '\n", "A", some("  foo  bar  ")),
            ("A='foo'\nB=''\n", "B", some("")),
            ("='foo'\nB='bar'", "B", Err(InvalidFormat(1))),
            ("A='a=b=c'\n", "A", some("a=b=c")),
            ("A='foo' # comment\n", "A", some("foo")),
            ("A='$VAR ${HOME}'", "A", some("$VAR ${HOME}")),
            ("A='foo'\nINVALID\nB='bar'\n", "B", Err(InvalidFormat(2))),
            ("A='foo'\nB=bar\n", "B", Err(Unquoted(2))),
            ("A='foo'\nB=\"bar\"\n", "B", Err(Unquoted(2))),
            ("A='foo''bar'", "A", Err(TrailingContent(1))),
            ("A='foo'\nB='bar\nC='baz'\n", "B", Err(TrailingContent(3))),
            ("B='bar'baz\n", "B", Err(TrailingContent(1))),
            ("B='bar", "B", Err(Unclosed(1))),
            ("A='one\n  two'\nB='x'\n", "A", some("one\n  two")),
            ("A='one\n\n\ntwo'\nB=x", "B", Err(Unquoted(5))),
            // Errors after the variable are not noticed.
            ("A='1'\nB=2\n", "A", some("1")),
            ("A='1'\r\nB='2'\r\n", "B", some("2")),
        ] {
            assert_eq!(value(text, name), expected, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in "([A-Z]{0,2}|[ \t\n='#\\\\]|\\PC){0,40}") {
            let _ = value(&text, "A");
        }

        #[test]
        fn quoted_values_round_trip(lines in prop::collection::vec("[^']{0,12}", 1..5), at in 0usize..4) {
            let text: String = lines.iter().enumerate().map(|(n, l)| format!("V{n}='{l}'\n")).collect();
            let expected = lines.get(at).cloned();
            prop_assert_eq!(value(&text, &format!("V{at}")), Ok(expected));
        }
    }
}
