//! The settings of device-manager in the configuration.

use std::path::PathBuf;

use polylet_kit::Ctx;

use crate::plugin::connection::ConnectTiming;

/// The settings.
pub(crate) struct Config {
    /// The directory in which plugins register.
    pub(crate) directory: PathBuf,
    /// The directory of the files with what the next process has to know of plugins.
    pub(crate) run_directory: PathBuf,
    /// How long plugins have to answer.
    pub(crate) connect: ConnectTiming,
}

impl Config {
    pub(crate) fn new(ctx: &Ctx) -> Self {
        Config {
            directory: ctx.config().polylet.device_plugin_directory.clone(),
            run_directory: ctx.run_dir().to_owned(),
            connect: ConnectTiming::default(),
        }
    }
}
