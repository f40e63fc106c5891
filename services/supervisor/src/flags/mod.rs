//! The kubelet's command line: `polylet run` takes what unit files of kubeadm and distributions hand
//! to the kubelet, and so does `polylet` under the name `kubelet`.
//!
//! - `table`: every flag and the field of the configuration that it is, or why it counts for nothing.
//! - `parse`: words of a command line to settings, as upstream's parser reads them.
//! - `files`: the configuration file and the drop-ins beside it, as documents.
//! - `effective`: files and flags as one configuration; flags win.

mod effective;
mod files;
mod parse;
mod table;
#[cfg(test)]
mod tests;
mod value;

use std::path::{Path, PathBuf};

use polylet_kit::{Config, DEFAULT_CONFIG, config};

use table::Means;

pub(crate) use parse::{Asked, Parsed, parse};

/// Why a command line cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FlagError {
    #[error("unknown flag --{name}{}", closest(.near))]
    Unknown {
        name: String,
        near: Option<&'static str>,
    },
    #[error("unexpected word {0:?}: flags begin with --")]
    Word(String),
    #[error("--{name} needs a value")]
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
    #[error("{path}: not a configuration: {why}")]
    Document { path: PathBuf, why: String },
    #[error(transparent)]
    Config(#[from] config::ConfigError),
    #[error("writing the effective configuration as YAML")]
    Encode(#[source] serde_yaml_ng::Error),
}

fn closest(near: &Option<&'static str>) -> String {
    near.map(|name| format!("; is --{name} meant?"))
        .unwrap_or_default()
}

/// What to run with.
pub(crate) struct Effective {
    /// As all services read it.
    pub(crate) config: Config,
    /// What they are to read, where it is not the one file that was named: written for them.
    pub(crate) text: Option<String>,
}

/// What can be said on the command line.
pub(crate) fn help() -> String {
    let mut text =
        "Runs the node. Flags are the kubelet's; each is a field of the configuration:\n\n"
            .to_owned();
    for flag in &table::FLAGS {
        let means = match flag.means {
            Means::Config => "the configuration file".to_owned(),
            Means::ConfigDirectory => "drop-ins *.conf over the configuration file".to_owned(),
            Means::Polylet(field) => format!("{field} of PolyletConfiguration"),
            Means::Kubelet(field) => format!("{field} of KubeletConfiguration"),
            Means::Deprecated(field) => format!("{field} of KubeletConfiguration (deprecated)"),
            Means::Nothing(why) => format!("ignored: {why}"),
        };
        text.push_str(&format!("  --{:<50} {means}\n", flag.name));
    }
    text
}

/// The configuration that a command line means.
///
/// # Errors
/// When a file or a value is wrong; what is wrong is named.
pub(crate) fn configuration(parsed: Parsed) -> Result<Effective, FlagError> {
    let standard = Path::new(DEFAULT_CONFIG);
    let Parsed {
        config: file,
        directory,
        settings,
        notes,
    } = parsed;
    let plain = directory.is_none() && settings.is_empty() && notes.is_empty();
    let file = file.or_else(|| (plain || standard.exists()).then(|| standard.to_owned()));
    if let (true, Some(file)) = (plain, &file) {
        let config = config::load(file)?;
        return Ok(Effective { config, text: None });
    }
    let mut documents = files::Documents::default();
    for path in file
        .into_iter()
        .chain(files::drop_ins(directory.as_deref())?)
    {
        documents.merge(&path)?;
    }
    effective::of(documents, settings, notes)
}
