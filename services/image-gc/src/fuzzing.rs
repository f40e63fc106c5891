//! Private parsers of foreign data, for the fuzz targets in `tests/fuzz`.

use std::path::Path;

use polylet_kit::state_file::StateFile;
use polylet_wire::runtime::v1 as cri;

use crate::convert;
use crate::core::records::{ImageRecords, ListedImage};

/// Converts an image of the runtime's list.
pub fn listed_image(image: cri::Image) -> ListedImage {
    convert::listed_image(image)
}

/// Loads the state file of the service in this directory.
pub fn state_files(dir: &Path) -> ImageRecords {
    let file = StateFile::new(dir.join("ages.json"), 1);
    file.restore("fuzzing").ok().flatten().unwrap_or_default()
}
