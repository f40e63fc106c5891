//! The parameters of requests for streams, with upstream's messages.

/// The streams of a command, or of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamOptions {
    pub(crate) stdin: bool,
    pub(crate) stdout: bool,
    pub(crate) stderr: bool,
    pub(crate) tty: bool,
}

type Pairs = [(String, String)];

impl StreamOptions {
    /// Reads `input`, `output`, `error` and `tty`: `1` asks for it. A terminal has no standard error.
    ///
    /// # Errors
    /// The message of a 400 response.
    pub(crate) fn parse(query: &Pairs) -> Result<Self, String> {
        let is_set = |name: &str| first(query, name) == Some("1");
        let tty = is_set("tty");
        let options = Self {
            stdin: is_set("input"),
            stdout: is_set("output"),
            stderr: is_set("error") && !tty,
            tty,
        };
        if !options.stdin && !options.stdout && !options.stderr {
            return Err("you must specify at least 1 of stdin, stdout, stderr".to_owned());
        }
        Ok(options)
    }
}

/// The command of an exec request: one parameter for each word.
pub(crate) fn exec_command(query: &Pairs) -> Vec<String> {
    let words = query.iter().filter(|(name, _)| name == "command");
    words.map(|(_, word)| word.clone()).collect()
}

/// The command of a run request: one parameter, divided at each space.
pub(crate) fn run_command(query: &Pairs) -> Vec<String> {
    let command = first(query, "cmd").unwrap_or_default();
    command.split(' ').map(str::to_owned).collect()
}

/// The ports that a WebSocket client without tunnelling names in advance.
///
/// # Errors
/// The message of a 400 response.
pub(crate) fn forwarded_ports(query: &Pairs) -> Result<Vec<i32>, String> {
    let mut ports = Vec::new();
    let mut is_given = false;
    for (_, text) in query.iter().filter(|(name, _)| name == "port") {
        is_given = true;
        if text.is_empty() {
            return Err("query parameter \"port\" cannot be empty".to_owned());
        }
        for one in text.split(',') {
            let port = parse_port(one)
                .map_err(|cause| format!("unable to parse {text:?} as a port: {cause}"))?;
            if port == 0 {
                return Err(format!("port {text:?} must be > 0"));
            }
            ports.push(i32::from(port));
        }
    }
    if is_given {
        Ok(ports)
    } else {
        Err("query parameter \"port\" is required".to_owned())
    }
}

/// Errors are worded as by Go's `strconv`.
fn parse_port(text: &str) -> Result<u16, String> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number {
        return Err(format!(
            "strconv.ParseUint: parsing {text:?}: invalid syntax"
        ));
    }
    text.parse()
        .map_err(|_| format!("strconv.ParseUint: parsing {text:?}: value out of range"))
}

fn first<'a>(query: &'a Pairs, name: &str) -> Option<&'a str> {
    let pair = query.iter().find(|(key, _)| key == name);
    pair.map(|(_, value)| value.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(query: &[(&str, &str)]) -> Vec<(String, String)> {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        query.iter().map(owned).collect()
    }

    #[test]
    fn streams_of_a_command() {
        let parsed = |query: &[(&str, &str)]| StreamOptions::parse(&pairs(query));
        let options = |stdin, stdout, stderr, tty| StreamOptions {
            stdin,
            stdout,
            stderr,
            tty,
        };
        for (query, expected) in [
            (&[("input", "1")][..], options(true, false, false, false)),
            (
                &[("output", "1"), ("error", "1")],
                options(false, true, true, false),
            ),
            (
                &[("output", "1"), ("error", "1"), ("tty", "1")],
                options(false, true, false, true),
            ),
            (
                &[("output", "1"), ("input", "true")],
                options(false, true, false, false),
            ),
        ] {
            assert_eq!(parsed(query), Ok(expected), "{query:?}");
        }
        for query in [
            &[][..],
            &[("output", "0")],
            &[("stdout", "1")],
            &[("tty", "1"), ("error", "1")],
            &[("output", "0"), ("output", "1")],
        ] {
            let message = "you must specify at least 1 of stdin, stdout, stderr";
            assert_eq!(parsed(query), Err(message.to_owned()), "{query:?}");
        }
    }

    #[test]
    fn commands() {
        let query = pairs(&[("command", "sh"), ("output", "1"), ("command", "-c  x")]);
        assert_eq!(exec_command(&query), ["sh", "-c  x"]);
        assert!(exec_command(&[]).is_empty());
        assert_eq!(
            run_command(&pairs(&[("cmd", "ls -l  /")])),
            ["ls", "-l", "", "/"]
        );
        assert_eq!(run_command(&[]), [""]);
    }

    #[test]
    fn ports_of_websocket_clients() {
        let parsed = |query: &[(&str, &str)]| forwarded_ports(&pairs(query));
        assert_eq!(
            parsed(&[("port", "80"), ("port", "81,65535")]),
            Ok(vec![80, 81, 65535])
        );
        for (query, message) in [
            (&[][..], "query parameter \"port\" is required"),
            (&[("port", "")], "query parameter \"port\" cannot be empty"),
            (&[("port", "1,0")], "port \"1,0\" must be > 0"),
            (
                &[("port", "1,x")],
                "unable to parse \"1,x\" as a port: strconv.ParseUint: parsing \"x\": invalid syntax",
            ),
            (
                &[("port", "-1")],
                "unable to parse \"-1\" as a port: strconv.ParseUint: parsing \"-1\": invalid syntax",
            ),
            (
                &[("port", "65536")],
                "unable to parse \"65536\" as a port: strconv.ParseUint: parsing \"65536\": value out of range",
            ),
        ] {
            assert_eq!(parsed(query), Err(message.to_owned()), "{query:?}");
        }
    }
}
