//! What all pages have in common.

use std::io::{self, Write};

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::format::svg::COLOURS;

/// Nothing is loaded, and nothing runs.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'";

const STYLE: &str = "\
:root{color-scheme:light dark;--text:#1f2328;--muted:#59636e;--line:#d8dee4;--back:#fff;--panel:#f6f8fa;--heat:#c2410c;--good:#1a7f37;--bad:#c1121f}\
@media(prefers-color-scheme:dark){:root{--text:#e6edf3;--muted:#9198a1;--line:#2a3038;--back:#0d1117;--panel:#151b23;--heat:#fb923c;--good:#3fb950;--bad:#ff7b72}}\
body{font:15px/1.5 system-ui,sans-serif;color:var(--text);background:var(--back);max-width:1240px;margin:2rem auto;padding:0 1.5rem}\
h1{font-size:1.7rem;margin:0 0 .25rem}h2{font-size:1.2rem;margin:2.5rem 0 .5rem}p{margin:.25rem 0 .75rem;max-width:75ch}.note{color:var(--muted)}\
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums;font-size:.9rem}\
th,td{text-align:right;padding:.25rem .6rem;border-bottom:1px solid var(--line);white-space:nowrap}\
th{font-weight:600;color:var(--muted)}th:first-child,td:first-child,.left{text-align:left}td:first-child{white-space:normal;overflow-wrap:anywhere}\
.scroll{overflow-x:auto}.cards{display:flex;flex-wrap:wrap;gap:.75rem;margin:1rem 0}\
.card{background:var(--panel);border:1px solid var(--line);border-radius:8px;padding:.6rem 1rem;min-width:7rem}.card b{display:block;font-size:1.35rem}.card span{color:var(--muted);font-size:.85rem}\
.heat{fill:var(--heat)}.empty{fill:var(--panel)}.chart text{font:12px system-ui,sans-serif;fill:var(--text)}.chart .dim{fill:var(--muted)}.chart .axis{stroke:var(--line)}\
.dot{display:inline-block;width:.7em;height:.7em;border-radius:2px;margin-right:.45em}.total{font-weight:600}\
.verdict{border-radius:1em;padding:.05em .7em;border:1px solid var(--line);color:var(--muted)}.slower{color:var(--bad);border-color:var(--bad);font-weight:600}.faster{color:var(--good);border-color:var(--good);font-weight:600}\
.range{stroke:var(--text);stroke-width:2}.point{fill:var(--text)}.band{fill:var(--panel)}.warning{border-left:4px solid var(--heat);background:var(--panel);padding:.4rem .9rem;margin:.4rem 0;overflow-wrap:anywhere}\
details{border:1px solid var(--line);border-radius:8px;margin:.6rem 0;padding:.4rem .9rem}summary{cursor:pointer;overflow-wrap:anywhere}svg{max-width:100%;height:auto}\
td svg{vertical-align:middle}";

/// Writes a page. The title is cut off already.
pub(super) fn write(title: &str, body: &Markup, to: &mut dyn Write) -> io::Result<()> {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width";
                link rel="icon" href="data:,";
                title { (title) }
                style { (PreEscaped(STYLE)) (PreEscaped(COLOURS)) }
            }
            body { (body) }
        }
    };
    to.write_all(page.into_string().as_bytes())?;
    to.write_all(b"\n")
}
