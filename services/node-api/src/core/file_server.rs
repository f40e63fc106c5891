//! The rules of Go's file server, as far as `/logs/` shows them: redirects, listings, kinds of content, ranges.

use std::fmt::Write;

use jiff::Timestamp;
use jiff::fmt::rfc2822;

/// Bytes of a file that decide about its kind.
pub(crate) const SNIFFED: usize = 512;

const INDEX: &str = "/index.html";

/// The path below the root that a request names, without a slash at its beginning and its end: `.` and `..` do
/// not lead out of the root, as if the root were that of a file system.
pub(crate) fn clean(path: &str) -> String {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Where a request for a path is sent instead, relative to it: directories end in a slash, files do not, and
/// the index of a directory is the directory.
pub(crate) fn redirect(path: &str, is_directory: bool) -> Option<String> {
    let path = format!("/{}", path.trim_start_matches('/'));
    if path.ends_with(INDEX) {
        return Some("./".to_owned());
    }
    let base = path.trim_end_matches('/').rsplit('/').next();
    let base = base.unwrap_or_default();
    match (is_directory, path.ends_with('/')) {
        (true, false) => Some(format!("{}/", escape_url(base))),
        (false, true) => Some(format!("../{}", escape_url(base))),
        _ => None,
    }
}

/// The listing of a directory; names of directories end in a slash.
pub(crate) fn listing(mut names: Vec<String>) -> String {
    names.sort();
    let mut text =
        "<!doctype html>\n<meta name=\"viewport\" content=\"width=device-width\">\n<pre>\n"
            .to_owned();
    for name in names {
        let url = escape_url(&name);
        // What would be read as a scheme is none.
        let first = url.split('/').next().unwrap_or_default();
        let prefix = if first.contains(':') { "./" } else { "" };
        let _ = writeln!(text, "<a href=\"{prefix}{url}\">{}</a>", escape_html(&name));
    }
    text + "</pre>\n"
}

fn escape_url(name: &str) -> String {
    let mut escaped = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            let _ = write!(escaped, "%{byte:02X}");
        }
    }
    escaped
}

fn escape_html(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&#34;"),
            '\'' => escaped.push_str("&#39;"),
            character => escaped.push(character),
        }
    }
    escaped
}

/// The kind of a file, by its name, or else by its first bytes.
pub(crate) fn media_type(name: &str, first: &[u8]) -> &'static str {
    let extension = name.rsplit_once('.').map(|(_, extension)| extension);
    match extension.unwrap_or_default() {
        "htm" | "html" => "text/html; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "json" => "application/json",
        "xml" => "text/xml; charset=utf-8",
        "pdf" => "application/pdf",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        _ if first.starts_with(b"\x1f\x8b\x08") => "application/x-gzip",
        _ if first.starts_with(b"PK\x03\x04") => "application/zip",
        _ if first.iter().any(|byte| is_binary(*byte)) => "application/octet-stream",
        _ => "text/plain; charset=utf-8",
    }
}

/// Bytes that occur in no text.
fn is_binary(byte: u8) -> bool {
    matches!(byte, 0..=0x08 | 0x0b | 0x0e..=0x1a | 0x1c..=0x1f)
}

/// The part of a file that is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FilePart {
    Whole,
    /// 206: this many bytes from this one.
    Range {
        start: u64,
        length: u64,
    },
    /// The file has no such part: 416.
    Unsatisfiable,
}

/// The part that the header `Range` asks for. Of several ranges the whole file is sent, which RFC 9110 allows.
pub(crate) fn part(range: Option<&str>, size: u64) -> FilePart {
    let Some(range) = range.filter(|range| !range.is_empty()) else {
        return FilePart::Whole;
    };
    let Some(ranges) = range.strip_prefix("bytes=") else {
        return FilePart::Unsatisfiable;
    };
    let mut ranges = ranges
        .split(',')
        .map(str::trim)
        .filter(|one| !one.is_empty());
    let (Some(first), None) = (ranges.next(), ranges.next()) else {
        return FilePart::Whole;
    };
    parse_range(first, size).unwrap_or(FilePart::Unsatisfiable)
}

fn parse_range(range: &str, size: u64) -> Option<FilePart> {
    let (start, end) = range.split_once('-')?;
    let number = |text: &str| {
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u64>().ok().filter(|_| digits)
    };
    let (start, end) = (start.trim(), end.trim());
    if start.is_empty() {
        // The last bytes.
        let length = number(end)?.min(size);
        let start = size.saturating_sub(length);
        return Some(FilePart::Range { start, length });
    }
    let start = number(start).filter(|start| *start < size)?;
    let end = match end {
        "" => size,
        end => number(end).filter(|end| *end >= start)?.saturating_add(1),
    };
    let length = end.min(size).saturating_sub(start);
    Some(FilePart::Range { start, length })
}

/// The time as in HTTP's headers, in seconds.
pub(crate) fn http_date(time: Timestamp) -> Option<String> {
    let printer = rfc2822::DateTimePrinter::new();
    printer.timestamp_to_rfc9110_string(&time).ok()
}

/// Whether what a client has from a time, as the header says, is still what there is.
pub(crate) fn is_unmodified(since: Option<&str>, modified: Timestamp) -> bool {
    let parser = rfc2822::DateTimeParser::new();
    let since = since.and_then(|since| parser.parse_timestamp(since).ok());
    since.is_some_and(|since| modified.as_second() <= since.as_second())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn paths_stay_below_the_root() {
        for (path, expected) in [
            ("", ""),
            ("/", ""),
            ("a/b", "a/b"),
            ("//a//b/", "a/b"),
            ("../../etc/passwd", "etc/passwd"),
            ("a/../../b/./c", "b/c"),
        ] {
            assert_eq!(clean(path), expected, "{path}");
        }
    }

    #[test]
    fn directories_end_in_a_slash_and_files_do_not() {
        for (path, is_directory, expected) in [
            ("", true, None),
            ("pods", true, Some("pods/")),
            ("a/b c", true, Some("b%20c/")),
            ("pods/", true, None),
            ("syslog", false, None),
            ("a/syslog/", false, Some("../syslog")),
            ("a/index.html", false, Some("./")),
        ] {
            let redirect = redirect(path, is_directory);
            assert_eq!(redirect.as_deref(), expected, "{path}");
        }
    }

    #[test]
    fn names_in_listings_are_escaped() {
        let names = ["b\"<x>&'", "a:b", "z/", "50% ?#"].map(str::to_owned);
        let expected = "<!doctype html>\n<meta name=\"viewport\" content=\"width=device-width\">\n<pre>\n\
            <a href=\"50%25%20%3F%23\">50% ?#</a>\n\
            <a href=\"./a:b\">a:b</a>\n\
            <a href=\"b%22%3Cx%3E&%27\">b&#34;&lt;x&gt;&amp;&#39;</a>\n\
            <a href=\"z/\">z/</a>\n</pre>\n";
        assert_eq!(listing(names.into()), expected);
    }

    #[test]
    fn kinds_of_files() {
        for (name, first, expected) in [
            ("syslog", &b"line\n"[..], "text/plain; charset=utf-8"),
            ("syslog", b"", "text/plain; charset=utf-8"),
            ("syslog.1.gz", b"\x1f\x8b\x08\x00", "application/x-gzip"),
            ("wtmp", b"\x01\x00", "application/octet-stream"),
            ("x.html", b"\x01", "text/html; charset=utf-8"),
        ] {
            assert_eq!(media_type(name, first), expected, "{name}");
        }
    }

    #[test]
    fn ranges() {
        let range = |start, length| FilePart::Range { start, length };
        for (header, expected) in [
            ("", FilePart::Whole),
            ("bytes=0-9", range(0, 10)),
            ("bytes=90-", range(90, 10)),
            ("bytes= 90 - 200 ", range(90, 10)),
            ("bytes=-5", range(95, 5)),
            ("bytes=-500", range(0, 100)),
            ("bytes=0-9,20-29", FilePart::Whole),
            ("bytes=100-", FilePart::Unsatisfiable),
            ("bytes=9-0", FilePart::Unsatisfiable),
            ("bytes=+1-2", FilePart::Unsatisfiable),
            ("lines=1-2", FilePart::Unsatisfiable),
        ] {
            assert_eq!(part(Some(header), 100), expected, "{header}");
        }
        assert_eq!(part(None, 100), FilePart::Whole);
    }

    #[test]
    fn times_are_compared_in_seconds() {
        let modified: Timestamp = "2026-01-02T03:04:05.678Z".parse().unwrap();
        let date = http_date(modified).unwrap();
        assert_eq!(date, "Fri, 02 Jan 2026 03:04:05 GMT");
        assert!(is_unmodified(Some(&date), modified));
        assert!(!is_unmodified(
            Some("Fri, 02 Jan 2026 03:04:04 GMT"),
            modified
        ));
        assert!(!is_unmodified(Some("yesterday"), modified) && !is_unmodified(None, modified));
    }

    proptest! {
        #[test]
        fn ranges_are_within_the_file(header in "bytes=[0-9-]{0,25}", size in 0..100_u64) {
            if let FilePart::Range { start, length } = part(Some(&header), size) {
                prop_assert!(start + length <= size);
            }
        }

        #[test]
        fn cleaned_paths_have_no_way_up(path in "[a./]{0,20}") {
            let cleaned = clean(&path);
            let mut parts = cleaned.split('/');
            prop_assert!(parts.all(|part| part != ".." && part != "." && (!part.is_empty() || cleaned.is_empty())));
        }
    }
}
