use jiff::Timestamp;

/// Where the container wrote it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// One line of a log file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line<'a> {
    /// When it was written.
    pub time: Timestamp,
    /// Where to.
    pub stream: Stream,
    /// The container's own line goes on in the next one.
    pub partial: bool,
    /// What the container wrote, without the line's end.
    pub content: &'a [u8],
}

/// Why a line cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// Fewer than four parts.
    #[error("the line is cut short")]
    Short,
    /// The time is none.
    #[error("the line does not begin with a time")]
    Time,
    /// The stream is neither of the two.
    #[error("the line names no known stream")]
    Stream,
}

/// Takes one line apart, with or without its end.
///
/// # Errors
/// When it is not of the runtime's form.
pub fn parse(line: &[u8]) -> Result<Line<'_>, LineError> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let (time, rest) = word(line)?;
    let (stream, rest) = word(rest)?;
    // An empty content may come without the space before it.
    let (tags, content) = word(rest).unwrap_or((rest, &[]));
    let time = std::str::from_utf8(time)
        .ok()
        .and_then(|t| t.parse().ok())
        .ok_or(LineError::Time)?;
    let stream = match stream {
        b"stdout" => Stream::Stdout,
        b"stderr" => Stream::Stderr,
        _ => return Err(LineError::Stream),
    };
    // The first tag is P or F; more may follow after colons.
    let partial = tags.split(|b| *b == b':').next() == Some(b"P".as_slice());
    Ok(Line {
        time,
        stream,
        partial,
        content,
    })
}

fn word(text: &[u8]) -> Result<(&[u8], &[u8]), LineError> {
    let end = text
        .iter()
        .position(|b| *b == b' ')
        .ok_or(LineError::Short)?;
    Ok((&text[..end], &text[end + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines() {
        type Wanted = Result<(Stream, bool, &'static str), LineError>;
        let cases: [(&str, Wanted); 9] = [
            (
                "2016-10-06T00:17:09.669794202Z stdout F hello  you\n",
                Ok((Stream::Stdout, false, "hello  you")),
            ),
            (
                "2016-10-06T00:17:09.669794202+02:00 stderr P half",
                Ok((Stream::Stderr, true, "half")),
            ),
            (
                "2016-10-06T00:17:09Z stdout P:X half",
                Ok((Stream::Stdout, true, "half")),
            ),
            (
                "2016-10-06T00:17:09Z stdout F ",
                Ok((Stream::Stdout, false, "")),
            ),
            (
                "2016-10-06T00:17:09Z stdout F",
                Ok((Stream::Stdout, false, "")),
            ),
            ("2016-10-06T00:17:09Z stdin F x", Err(LineError::Stream)),
            ("yesterday stdout F x", Err(LineError::Time)),
            ("2016-10-06T00:17:09Z", Err(LineError::Short)),
            ("", Err(LineError::Short)),
        ];
        for (text, wanted) in cases {
            let got = parse(text.as_bytes()).map(|l| (l.stream, l.partial, l.content));
            let wanted = wanted.map(|(s, p, c)| (s, p, c.as_bytes()));
            assert_eq!(got, wanted, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn junk_never_panics(junk: Vec<u8>) {
            let _ = parse(&junk);
        }

        #[test]
        fn nearly_right_never_panics(text in "[0-9TZ:.+-]{0,30} (stdout|stderr|x)? ?[PF:]{0,3} ?.*") {
            let _ = parse(text.as_bytes());
        }

        #[test]
        fn content_comes_back(content in "[^\n]*", partial: bool) {
            let tag = if partial { "P" } else { "F" };
            let text = format!("2016-10-06T00:17:09.000000001Z stderr {tag} {content}\n");
            let line = parse(text.as_bytes()).unwrap();
            prop_assert_eq!(line.content, content.as_bytes());
            prop_assert_eq!(line.partial, partial);
        }
    }
}
