use std::path::Path;

use polylet_kit::Exit;
use serde_json::json;

use crate::cli::Output;

/// Tells everything that is wrong with a configuration.
pub(crate) fn check(file: &Path, output: Output) -> Exit {
    let problems = polylet_kit::config::check(file);
    if output == Output::Json {
        let list: Vec<_> = problems
            .iter()
            .map(|problem| json!({"field": problem.field, "message": problem.message}))
            .collect();
        super::json(&json!({"file": file, "ok": problems.is_empty(), "problems": list}));
    } else if problems.is_empty() {
        super::print(&format!("{}: ok\n", file.display()));
    } else {
        for problem in &problems {
            super::print(&format!("{problem}\n"));
        }
    }
    if problems.is_empty() {
        Exit::Ok
    } else {
        Exit::Config
    }
}
