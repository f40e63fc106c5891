use jiff::Timestamp;

/// An output stream of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// A line of a log file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CriLogLine<'a> {
    /// When it was written.
    pub time: Timestamp,
    /// The stream that it was written to.
    pub stream: LogStream,
    /// Whether the container's line continues in the next one of the file.
    pub partial: bool,
    /// The container's output, without a line break.
    pub content: &'a [u8],
}

/// An invalid line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ParseLineError {
    /// A field is missing.
    #[error("the line is incomplete")]
    Short,
    /// The time is invalid.
    #[error("the line has no timestamp")]
    Time,
    /// The stream is unknown.
    #[error("the line has an unknown stream")]
    Stream,
}

/// Parses a line, with or without its line break.
///
/// # Errors
/// If the line does not have the runtime's format.
pub fn parse_line(line: &[u8]) -> Result<CriLogLine<'_>, ParseLineError> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let (time, rest) = split_word(line)?;
    let (stream, rest) = split_word(rest)?;
    // The space before an empty content may be missing.
    let (tags, content) = split_word(rest).unwrap_or((rest, &[]));
    let time = std::str::from_utf8(time)
        .ok()
        .and_then(|t| t.parse().ok())
        .ok_or(ParseLineError::Time)?;
    let stream = match stream {
        b"stdout" => LogStream::Stdout,
        b"stderr" => LogStream::Stderr,
        _ => return Err(ParseLineError::Stream),
    };
    // The first tag is P or F; others may follow after colons.
    let partial = tags.split(|b| *b == b':').next() == Some(b"P".as_slice());
    Ok(CriLogLine {
        time,
        stream,
        partial,
        content,
    })
}

fn split_word(text: &[u8]) -> Result<(&[u8], &[u8]), ParseLineError> {
    let end = text.iter().position(|b| *b == b' ');
    let (word, rest) = end
        .and_then(|end| text.split_at_checked(end))
        .ok_or(ParseLineError::Short)?;
    Ok((word, rest.strip_prefix(b" ").unwrap_or(rest)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines() {
        type Expected = Result<(LogStream, bool, &'static str), ParseLineError>;
        let cases: [(&str, Expected); 9] = [
            (
                "2016-10-06T00:17:09.669794202Z stdout F hello  you\n",
                Ok((LogStream::Stdout, false, "hello  you")),
            ),
            (
                "2016-10-06T00:17:09.669794202+02:00 stderr P half",
                Ok((LogStream::Stderr, true, "half")),
            ),
            (
                "2016-10-06T00:17:09Z stdout P:X half",
                Ok((LogStream::Stdout, true, "half")),
            ),
            (
                "2016-10-06T00:17:09Z stdout F ",
                Ok((LogStream::Stdout, false, "")),
            ),
            (
                "2016-10-06T00:17:09Z stdout F",
                Ok((LogStream::Stdout, false, "")),
            ),
            (
                "2016-10-06T00:17:09Z stdin F x",
                Err(ParseLineError::Stream),
            ),
            ("yesterday stdout F x", Err(ParseLineError::Time)),
            ("2016-10-06T00:17:09Z", Err(ParseLineError::Short)),
            ("", Err(ParseLineError::Short)),
        ];
        for (text, expected) in cases {
            let actual = parse_line(text.as_bytes()).map(|l| (l.stream, l.partial, l.content));
            let expected = expected.map(|(s, p, c)| (s, p, c.as_bytes()));
            assert_eq!(actual, expected, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_lines_never_panic(junk: Vec<u8>) {
            let _ = parse_line(&junk);
        }

        #[test]
        fn almost_valid_lines_never_panic(text in "[0-9TZ:.+-]{0,30} (stdout|stderr|x)? ?[PF:]{0,3} ?.*") {
            let _ = parse_line(text.as_bytes());
        }

        #[test]
        fn content_round_trips(content in "[^\n]*", partial: bool) {
            let tag = if partial { "P" } else { "F" };
            let text = format!("2016-10-06T00:17:09.000000001Z stderr {tag} {content}\n");
            let line = parse_line(text.as_bytes()).unwrap();
            prop_assert_eq!(line.content, content.as_bytes());
            prop_assert_eq!(line.partial, partial);
        }
    }
}
