use std::path::PathBuf;

/// Where the configuration is looked for when nothing else is said.
pub const DEFAULT_CONFIG: &str = "/etc/polylet/config.yaml";

/// What a service can be asked on its command line. Four options do not pay for a parser crate in
/// each of nine processes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Run { config: PathBuf },
    Version,
    Manifest,
    Help,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ArgsError {
    #[error("--config needs a file")]
    NoFile,
    #[error("unknown argument {0:?}; known are --config FILE, --version, --manifest, --help")]
    Unknown(String),
}

/// Reads the arguments after the program's name.
pub(crate) fn parse(args: impl IntoIterator<Item = String>) -> Result<Asked, ArgsError> {
    let mut config = PathBuf::from(DEFAULT_CONFIG);
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--version" | "-V" => return Ok(Asked::Version),
            "--manifest" => return Ok(Asked::Manifest),
            "--help" | "-h" => return Ok(Asked::Help),
            "--config" => config = args.next().ok_or(ArgsError::NoFile)?.into(),
            other => match other.strip_prefix("--config=") {
                Some("") => return Err(ArgsError::NoFile),
                Some(file) => config = file.into(),
                None => return Err(ArgsError::Unknown(arg)),
            },
        }
    }
    Ok(Asked::Run { config })
}

#[cfg(test)]
mod tests {
    use super::{ArgsError, Asked, parse};

    fn of(args: &[&str]) -> Result<Asked, ArgsError> {
        parse(args.iter().map(|a| a.to_string()))
    }

    #[test]
    fn arguments() {
        let run = |file: &str| {
            Ok(Asked::Run {
                config: file.into(),
            })
        };
        assert_eq!(of(&[]), run("/etc/polylet/config.yaml"));
        assert_eq!(of(&["--config", "a"]), run("a"));
        assert_eq!(of(&["--config=a"]), run("a"));
        assert_eq!(of(&["--config"]), Err(ArgsError::NoFile));
        assert_eq!(of(&["--config="]), Err(ArgsError::NoFile));
        assert_eq!(of(&["--version"]), Ok(Asked::Version));
        assert_eq!(of(&["--manifest"]), Ok(Asked::Manifest));
        assert_eq!(of(&["-h"]), Ok(Asked::Help));
        assert_eq!(of(&["x"]), Err(ArgsError::Unknown("x".to_owned())));
    }
}
