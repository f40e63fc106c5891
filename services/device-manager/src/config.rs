//! The settings of device-manager in the configuration.

use std::path::PathBuf;

use polylet_kit::Ctx;

/// The settings.
pub(crate) struct Config {
    /// The directory in which plugins register.
    pub(crate) directory: PathBuf,
}

impl Config {
    pub(crate) fn new(ctx: &Ctx) -> Self {
        Config {
            directory: ctx.config().polylet.device_plugin_directory.clone(),
        }
    }
}
