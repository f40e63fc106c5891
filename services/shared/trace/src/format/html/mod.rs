//! Pages about many traces: each is one file that needs neither network nor script.

mod comparison_page;
mod heat_map;
mod histogram;
mod page;
mod report_page;
mod step_times;

pub use comparison_page::diff_report;
pub use report_page::report;

#[cfg(test)]
mod tests;
