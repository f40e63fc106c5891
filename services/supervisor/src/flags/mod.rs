//! The kubelet's command line: `polylet run`, or `polylet` under the name `kubelet`, accepts the flags in unit
//! files of kubeadm and distributions.
//!
//! - `table`: every flag, and the configuration field that it sets or the reason why it is ignored.
//! - `parse`: arguments to settings, with the syntax of upstream's parser.
//! - `files`: the configuration file and its drop-ins, as documents.
//! - `effective`: the configuration out of files and flags; flags take precedence.

mod effective;
mod files;
mod parse;
mod table;
#[cfg(test)]
mod tests;
mod value;

use std::path::{Path, PathBuf};

use polylet_kit::{Config, DEFAULT_CONFIG, config};

use table::FlagEffect;

pub(crate) use parse::{ParsedArgs, RunArgs, parse};

/// Why a command line is invalid.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FlagError {
    #[error("unknown flag --{name}{}", suggestion(.similar))]
    Unknown {
        name: String,
        similar: Option<&'static str>,
    },
    #[error("unexpected argument {0:?}")]
    Argument(String),
    #[error("--{name} requires a value")]
    NoValue { name: &'static str },
    #[error("--{name}={value}: {expected}")]
    Value {
        name: &'static str,
        value: String,
        expected: String,
    },
    #[error("reading {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("invalid configuration file {path}: {error}")]
    Document { path: PathBuf, error: String },
    #[error(transparent)]
    Config(#[from] config::ConfigError),
    #[error("encoding the effective configuration")]
    Encode(#[source] serde_yaml_ng::Error),
}

fn suggestion(similar: &Option<&'static str>) -> String {
    similar
        .map(|name| format!("; did you mean --{name}?"))
        .unwrap_or_default()
}

/// The configuration to run with.
pub(crate) struct EffectiveConfig {
    pub(crate) config: Config,
    /// The text to write for the services, unless they can read the configuration file itself.
    pub(crate) text: Option<String>,
}

/// The help text of `polylet run`.
pub(crate) fn help() -> String {
    let mut text =
        "Start the node's services and supervise them.\n\nUsage: polylet run [FLAGS]\n\n  --backend child|systemd|external   services as children of this process (default), as units of systemd, or run by\n                                     something else, such as containers\n\nFlags of the kubelet, and the fields that they set:\n"
            .to_owned();
    for flag in &table::FLAGS {
        let effect = match flag.effect {
            FlagEffect::Config => "configuration file".to_owned(),
            FlagEffect::ConfigDirectory => {
                "directory of drop-ins *.conf over the configuration file".to_owned()
            }
            FlagEffect::Polylet(field) => format!("{field} of PolyletConfiguration"),
            FlagEffect::Kubelet(field) => format!("{field} of KubeletConfiguration"),
            FlagEffect::Deprecated(field) => {
                format!("{field} of KubeletConfiguration (deprecated)")
            }
            FlagEffect::Ignored(reason) => format!("ignored: {reason}"),
        };
        text.push_str(&format!("  --{:<50} {effect}\n", flag.name));
    }
    text
}

/// The text of the effective configuration of a command line, for a file.
///
/// # Errors
/// When a file or a value is invalid.
pub(crate) fn text(mut args: RunArgs) -> Result<String, FlagError> {
    let mut documents = files::Documents::default();
    let directory = args.directory.take();
    let file = args.config.take().into_iter();
    for path in file.chain(files::drop_ins(directory.as_deref())?) {
        documents.merge(&path)?;
    }
    let effective = effective::merge(documents, args.settings, args.warnings)?;
    Ok(effective.text.unwrap_or_default())
}

/// The effective configuration of a command line.
///
/// # Errors
/// When a file or a value is invalid.
pub(crate) fn configuration(args: RunArgs) -> Result<EffectiveConfig, FlagError> {
    let default = Path::new(DEFAULT_CONFIG);
    let RunArgs {
        config: file,
        directory,
        settings,
        warnings,
        backend: _,
    } = args;
    let plain = directory.is_none() && settings.is_empty() && warnings.is_empty();
    let file = file.or_else(|| (plain || default.exists()).then(|| default.to_owned()));
    if let (true, Some(file)) = (plain, &file) {
        let config = config::load(file)?;
        return Ok(EffectiveConfig { config, text: None });
    }
    let mut documents = files::Documents::default();
    for path in file
        .into_iter()
        .chain(files::drop_ins(directory.as_deref())?)
    {
        documents.merge(&path)?;
    }
    effective::merge(documents, settings, warnings)
}
