//! Private parsers of foreign data, for the fuzz targets in `tests/fuzz`.

use std::path::Path;

use crate::manager::Results;
use crate::state_file::ResultsFile;

/// Loads the state file of the service in this directory.
pub fn state_files(dir: &Path) -> Results {
    ResultsFile::new(dir).load().unwrap_or_default()
}
