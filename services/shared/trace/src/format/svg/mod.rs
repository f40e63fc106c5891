//! A trace as a drawing: a row for each span, in the manner of `systemd-analyze plot`. Time on the critical path has the
//! colour of its owner.

mod axis;
mod waterfall;

use std::io::{self, Write};

use maud::{PreEscaped, html};

pub(super) use self::waterfall::{COLOURS, waterfall};
use crate::trace::Trace;

/// Further spans are counted only.
const MAX_ROWS: usize = 1000;

/// Writes the drawing as a file of its own.
///
/// # Errors
/// Writing failed.
pub fn write(trace: &Trace, to: &mut dyn Write) -> io::Result<()> {
    let style = html! { style { (PreEscaped(COLOURS)) } };
    let drawing = waterfall(trace, MAX_ROWS, style);
    to.write_all(drawing.into_string().as_bytes())?;
    to.write_all(b"\n")
}
