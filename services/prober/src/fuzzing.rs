//! Private parsers of foreign data, for the fuzz targets in `tests/fuzz`.

use std::path::Path;

use crate::manager::Results;
use crate::state_file::ResultsFile;

/// Loads the state file of the service in this directory.
pub fn state_files(dir: &Path) -> Results {
    let opened = ResultsFile::open(dir);
    opened
        .map(|file| file.results().clone())
        .unwrap_or_default()
}
