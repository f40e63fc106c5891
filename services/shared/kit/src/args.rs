use std::path::PathBuf;

/// The configuration file unless `--config` names another.
pub const DEFAULT_CONFIG: &str = "/etc/polylet/config.yaml";

/// The parsed command line of a service. Four options are not worth a parser crate in each of
/// ten processes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Invocation {
    Run { config: PathBuf },
    Version,
    Descriptor,
    Help,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ArgsError {
    #[error("--config needs a file")]
    NoFile,
    #[error("unknown argument {0:?}; known are --config FILE, --version, --descriptor, --help")]
    Unknown(String),
}

/// Parses the arguments after the program's name.
pub(crate) fn parse(args: impl IntoIterator<Item = String>) -> Result<Invocation, ArgsError> {
    let mut config = PathBuf::from(DEFAULT_CONFIG);
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--version" | "-V" => return Ok(Invocation::Version),
            "--descriptor" => return Ok(Invocation::Descriptor),
            "--help" | "-h" => return Ok(Invocation::Help),
            "--config" => config = args.next().ok_or(ArgsError::NoFile)?.into(),
            other => match other.strip_prefix("--config=") {
                Some("") => return Err(ArgsError::NoFile),
                Some(file) => config = file.into(),
                None => return Err(ArgsError::Unknown(arg)),
            },
        }
    }
    Ok(Invocation::Run { config })
}

#[cfg(test)]
mod tests {
    use super::{ArgsError, Invocation};

    fn parse(args: &[&str]) -> Result<Invocation, ArgsError> {
        super::parse(args.iter().map(|arg| arg.to_string()))
    }

    #[test]
    fn parses_arguments() {
        let run = |file: &str| {
            Ok(Invocation::Run {
                config: file.into(),
            })
        };
        assert_eq!(parse(&[]), run("/etc/polylet/config.yaml"));
        assert_eq!(parse(&["--config", "a"]), run("a"));
        assert_eq!(parse(&["--config=a"]), run("a"));
        assert_eq!(parse(&["--config"]), Err(ArgsError::NoFile));
        assert_eq!(parse(&["--config="]), Err(ArgsError::NoFile));
        assert_eq!(parse(&["--version"]), Ok(Invocation::Version));
        assert_eq!(parse(&["--descriptor"]), Ok(Invocation::Descriptor));
        assert_eq!(parse(&["-h"]), Ok(Invocation::Help));
        assert_eq!(parse(&["x"]), Err(ArgsError::Unknown("x".to_owned())));
    }
}
