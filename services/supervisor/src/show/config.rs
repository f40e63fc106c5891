//! `polylet check-config`.

use std::path::Path;

use polylet_kit::Exit;
use serde_json::json;

use crate::args::OutputFormat;

/// Prints all errors of a configuration file.
pub(crate) fn check(file: &Path, output: OutputFormat) -> Exit {
    let errors = polylet_kit::config::check(file);
    if output == OutputFormat::Json {
        let list: Vec<_> = errors
            .iter()
            .map(|error| json!({"field": error.field, "message": error.message}))
            .collect();
        super::json(&json!({"file": file, "ok": errors.is_empty(), "errors": list}));
    } else if errors.is_empty() {
        super::print(&format!("{}: ok\n", file.display()));
    } else {
        for error in &errors {
            super::print(&format!("{error}\n"));
        }
    }
    if errors.is_empty() {
        Exit::Ok
    } else {
        Exit::Config
    }
}
