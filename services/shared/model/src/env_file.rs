//! Environment files in POSIX shell syntax, with single-quoted values only: `NAME='value'`.
//!
//! Parsed by lines, as upstream's `ParseEnv` does: the end of a line may be `\r\n`, also within a
//! value, which has `\n` there.

use std::collections::BTreeMap;

/// The longest line, as upstream's scanner.
const MAX_LINE_BYTES: usize = 64 << 10;

/// A syntax error in an environment file, by line. The message contains nothing of the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnvFileError {
    /// Neither an assignment, a comment nor a blank line.
    #[error("invalid environment variable format at line {0}: missing '='")]
    NoAssignment(usize),
    /// `='value'`.
    #[error("invalid environment variable format at line {0}: empty variable name")]
    NoName(usize),
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
    #[error("invalid environment variable format starting at line {0}: unclosed single quote")]
    Unclosed(usize),
    /// A line of more than 64 KiB.
    #[error("line {0} is too long")]
    LongLine(usize),
}

/// A parsed file. What follows a syntax error is not read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnvFile {
    values: BTreeMap<Vec<u8>, Vec<u8>>,
    error: Option<EnvFileError>,
}

impl EnvFile {
    /// Parses a file up to its first error. As in a shell, `NAME= 'value'` sets an empty value.
    pub fn parse(file: &[u8]) -> Self {
        let mut lines = EnvFileLines {
            rest: file,
            number: 0,
        };
        let mut values = BTreeMap::new();
        loop {
            match assignment(&mut lines) {
                Ok(Some((name, value))) => {
                    // Upstream stops at the first one.
                    values.entry(name.to_vec()).or_insert(value);
                }
                Ok(None) => {
                    return EnvFile {
                        values,
                        error: None,
                    };
                }
                Err(error) => {
                    return EnvFile {
                        values,
                        error: Some(error),
                    };
                }
            }
        }
    }

    /// The value of a variable, or `None` if the file does not set it.
    ///
    /// # Errors
    /// When the file has an error and does not set the variable before it.
    pub fn value(&self, name: &str) -> Result<Option<&[u8]>, EnvFileError> {
        match (self.values.get(name.as_bytes()), &self.error) {
            (Some(value), _) => Ok(Some(value)),
            (None, Some(error)) => Err(error.clone()),
            (None, None) => Ok(None),
        }
    }
}

/// A name and its value.
type Assignment<'a> = (&'a [u8], Vec<u8>);

/// The next assignment.
fn assignment<'a>(lines: &mut EnvFileLines<'a>) -> Result<Option<Assignment<'a>>, EnvFileError> {
    while let Some(line) = lines.next_line()? {
        let line = trim_start(line);
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        let number = lines.number;
        let (name, assigned) = split_at(line, b'=').ok_or(EnvFileError::NoAssignment(number))?;
        match name.last() {
            None => return Err(EnvFileError::NoName(number)),
            Some(b' ' | b'\t') => return Err(EnvFileError::SpaceBeforeEquals(number)),
            Some(_) => {}
        }
        if let [b' ' | b'\t', ..] = assigned {
            return Ok(Some((name, Vec::new())));
        }
        let quoted = assigned.strip_prefix(b"'");
        let value = quoted_value(quoted.ok_or(EnvFileError::Unquoted(number))?, lines)?;
        return Ok(Some((name, value)));
    }
    Ok(None)
}

/// The value that begins with the rest of a line, up to the closing quote.
fn quoted_value(first: &[u8], lines: &mut EnvFileLines<'_>) -> Result<Vec<u8>, EnvFileError> {
    let start = lines.number;
    let (mut value, mut rest) = (Vec::new(), first);
    loop {
        if let Some((last, after)) = split_at(rest, b'\'') {
            value.extend_from_slice(last);
            let after = trim_start(after);
            if after.is_empty() || after.starts_with(b"#") {
                return Ok(value);
            }
            return Err(EnvFileError::TrailingContent(lines.number));
        }
        value.extend_from_slice(rest);
        value.push(b'\n');
        // As upstream, a line that is too long counts as the end here.
        let next = lines.next_line().ok().flatten();
        rest = next.ok_or(EnvFileError::Unclosed(start))?;
    }
}

struct EnvFileLines<'a> {
    rest: &'a [u8],
    /// Of the last line, from one.
    number: usize,
}

impl<'a> EnvFileLines<'a> {
    fn next_line(&mut self) -> Result<Option<&'a [u8]>, EnvFileError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let (line, rest) = split_at(self.rest, b'\n').unwrap_or((self.rest, &[]));
        if line.len() >= MAX_LINE_BYTES {
            return Err(EnvFileError::LongLine(self.number + 1));
        }
        self.rest = rest;
        self.number += 1;
        Ok(Some(line.strip_suffix(b"\r").unwrap_or(line)))
    }
}

fn split_at(text: &[u8], byte: u8) -> Option<(&[u8], &[u8])> {
    let at = text.iter().position(|other| *other == byte)?;
    text.split_at_checked(at)
        .map(|(before, after)| (before, after.get(1..).unwrap_or_default()))
}

fn trim_start(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = text {
        text = rest;
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn value(file: &[u8], name: &str) -> Result<Option<Vec<u8>>, EnvFileError> {
        let file = EnvFile::parse(file);
        file.value(name).map(|value| value.map(<[u8]>::to_vec))
    }

    #[test]
    fn syntax_as_upstream() {
        use EnvFileError::*;
        let some = |text: &str| Ok(Some(text.as_bytes().to_vec()));
        for (text, name, expected) in [
            ("   A='1'\n\t\tB='2'\nC='3'\n", "B", some("2")),
            ("# c\n\nA='foo'\n   # d\n\nB='bar'\n", "B", some("bar")),
            ("A = '1'\nB='2'\n", "B", Err(SpaceBeforeEquals(1))),
            ("A='1'\n", "B", Ok(None)),
            ("A='foo#no'\n", "A", some("foo#no")),
            ("A='  foo  bar  '\n", "A", some("  foo  bar  ")),
            ("A='foo'\nB=''\n", "B", some("")),
            ("='foo'\nB='bar'", "B", Err(NoName(1))),
            ("A='a=b=c'\n", "A", some("a=b=c")),
            ("A='foo' # comment\n", "A", some("foo")),
            ("A='$VAR ${HOME}'", "A", some("$VAR ${HOME}")),
            ("A='foo'\nINVALID\nB='bar'\n", "B", Err(NoAssignment(2))),
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
            ("A='1'\nA='2'\n", "A", some("1")),
            ("A='1'\r\nB='2'\r\n", "B", some("2")),
            ("A='1\r\n2'\r\n", "A", some("1\n2")),
            // A shell assigns nothing here.
            ("A= 'foo'\nB='bar'\n", "A", some("")),
            ("A=\t'foo'\nB='bar'\n", "B", some("bar")),
            ("A=   foo'\nB='bar'\n", "B", some("bar")),
            ("\u{a0}\nB='bar'\n", "B", Err(NoAssignment(1))),
        ] {
            assert_eq!(value(text.as_bytes(), name), expected, "{text:?}");
        }
    }

    #[test]
    fn lines_have_a_limit_and_values_need_not_be_text() {
        let long = format!("A='{}'\n", "x".repeat(MAX_LINE_BYTES));
        assert_eq!(value(long.as_bytes(), "A"), Err(EnvFileError::LongLine(1)));
        let within = format!("A='1\n{}'\n", "x".repeat(MAX_LINE_BYTES));
        assert_eq!(
            value(within.as_bytes(), "A"),
            Err(EnvFileError::Unclosed(1))
        );
        assert_eq!(value(b"A='\xff'", "A"), Ok(Some(vec![0xff])));
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in "([A-Z]{0,2}|[ \t\n='#\\\\]|\\PC){0,40}") {
            let _ = value(text.as_bytes(), "A");
        }

        #[test]
        fn quoted_values_round_trip(lines in prop::collection::vec("[^']{0,12}", 1..5), at in 0usize..4) {
            let text: String = lines.iter().enumerate().map(|(n, l)| format!("V{n}='{l}'\n")).collect();
            let expected = lines.get(at).map(|line| line.replace("\r\n", "\n").into_bytes());
            prop_assert_eq!(value(text.as_bytes(), &format!("V{at}")), Ok(expected));
        }
    }
}
