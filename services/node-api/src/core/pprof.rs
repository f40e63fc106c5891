//! The profiles that can be requested, by the rules of Go's `net/http/pprof`, as far as they make sense here.

use std::time::Duration;

/// What a request below `/debug/pprof/` is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PprofPage {
    Index,
    CommandLine,
    /// Processor time.
    Profile,
    /// Allocations of memory.
    Heap,
    Symbol,
    /// What only the runtime of Go has.
    OfGo,
    Unknown,
}

/// The names of the pages with what they are for.
const PAGES: [(&str, PprofPage, &str); 6] = [
    (
        "allocs",
        PprofPage::Heap,
        "Memory that is allocated while the profile is taken, as in heap.",
    ),
    (
        "cmdline",
        PprofPage::CommandLine,
        "The command line of node-api.",
    ),
    (
        "heap",
        PprofPage::Heap,
        "Memory that is allocated while the profile is taken, and what of it is not freed.",
    ),
    (
        "profile",
        PprofPage::Profile,
        "Processor time that is spent while the profile is taken.",
    ),
    (
        "symbol",
        PprofPage::Symbol,
        "The names of functions of node-api at the addresses of the query, which are separated by '+'.",
    ),
    (
        "trace",
        PprofPage::OfGo,
        "Not available: a trace of the runtime of Go.",
    ),
];

/// Addresses of a request for symbols at most.
const MAX_SYMBOLS: usize = 4096;

/// The page of a name, which is the path after `/debug/pprof/`.
pub(crate) fn page(name: &str) -> PprofPage {
    match name {
        "" => PprofPage::Index,
        "block" | "goroutine" | "goroutineleak" | "mutex" | "threadcreate" => PprofPage::OfGo,
        _ => {
            let page = PAGES.iter().find(|(known, _, _)| *known == name);
            page.map_or(PprofPage::Unknown, |(_, page, _)| *page)
        }
    }
}

/// How long to sample: `seconds` of the query. As in Go, processor time is sampled as long as usual if there is no such
/// number, and a heap profile refuses what is none.
///
/// # Errors
/// The message of a 400 response.
pub(crate) fn duration(
    page: PprofPage,
    seconds: Option<&str>,
    usual: Duration,
    longest: Duration,
) -> Result<Duration, String> {
    let seconds = seconds.unwrap_or_default();
    let parsed = seconds.parse::<i64>().ok();
    let parsed = parsed.and_then(|seconds| u64::try_from(seconds).ok());
    let duration = match parsed.filter(|seconds| *seconds > 0) {
        Some(seconds) => Duration::from_secs(seconds),
        None if page == PprofPage::Profile || seconds.is_empty() => usual,
        None => {
            return Err("invalid value for \"seconds\" - must be a positive integer".to_owned());
        }
    };
    if duration > longest {
        let longest = longest.as_secs();
        return Err(format!("a profile lasts {longest} seconds at most"));
    }
    Ok(duration)
}

/// The addresses of a request for symbols, as `strconv.ParseUint` reads them; what is no number is left out.
pub(crate) fn addresses(query: &str) -> Vec<usize> {
    let words = query.split('+').take(MAX_SYMBOLS);
    let parse = |word: &str| {
        let hexadecimal = word.strip_prefix("0x").or_else(|| word.strip_prefix("0X"));
        match hexadecimal {
            Some(digits) => usize::from_str_radix(digits, 16),
            None => word.parse(),
        }
    };
    words
        .filter_map(|word| parse(word).ok())
        .filter(|address| *address != 0)
        .collect()
}

/// The response to a request for symbols: the number says that there are any.
pub(crate) fn symbols(names: impl Iterator<Item = (usize, Option<String>)>) -> String {
    let mut text = "num_symbols: 1\n".to_owned();
    for (address, name) in names {
        if let Some(name) = name {
            text.push_str(&format!("{address:#x} {name}\n"));
        }
    }
    text
}

/// The page that lists the others.
pub(crate) fn index(services: impl Iterator<Item = &'static str>) -> String {
    let item = |(name, _, about): &(&str, PprofPage, &str)| {
        format!("<tr><td><a href='{name}'>{name}</a></td><td>{about}</td></tr>\n")
    };
    let items: String = PAGES.iter().map(item).collect();
    let services: Vec<_> = services.collect();
    let services = services.join(", ");
    format!(
        "<html>\n<head><title>/debug/pprof/</title></head>\n<body>\n<p>/debug/pprof/</p>\n<table>\n{items}</table>\n\
         <p>Profiles last ?seconds=N. ?service=NAME takes them of another service: {services}.</p>\n</body>\n</html>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: Duration = Duration::from_secs(30);
    const LONGEST: Duration = Duration::from_secs(300);

    #[test]
    fn pages() {
        for (name, expected) in [
            ("", PprofPage::Index),
            ("profile", PprofPage::Profile),
            ("heap", PprofPage::Heap),
            ("allocs", PprofPage::Heap),
            ("cmdline", PprofPage::CommandLine),
            ("symbol", PprofPage::Symbol),
            ("trace", PprofPage::OfGo),
            ("goroutine", PprofPage::OfGo),
            ("mutex", PprofPage::OfGo),
            ("profile/", PprofPage::Unknown),
            ("Heap", PprofPage::Unknown),
        ] {
            assert_eq!(page(name), expected, "{name}");
        }
    }

    #[test]
    fn durations() {
        let refused =
            || Err("invalid value for \"seconds\" - must be a positive integer".to_owned());
        let too_long = || Err("a profile lasts 300 seconds at most".to_owned());
        for (seconds, processor, heap) in [
            (None, Ok(USUAL), Ok(USUAL)),
            (Some(""), Ok(USUAL), Ok(USUAL)),
            (
                Some("5"),
                Ok(Duration::from_secs(5)),
                Ok(Duration::from_secs(5)),
            ),
            (Some("0"), Ok(USUAL), refused()),
            (Some("-1"), Ok(USUAL), refused()),
            (Some("x"), Ok(USUAL), refused()),
            (Some("300"), Ok(LONGEST), Ok(LONGEST)),
            (Some("301"), too_long(), too_long()),
        ] {
            for (page, expected) in [(PprofPage::Profile, processor), (PprofPage::Heap, heap)] {
                assert_eq!(
                    duration(page, seconds, USUAL, LONGEST),
                    expected,
                    "{seconds:?}"
                );
            }
        }
    }

    #[test]
    fn symbols_of_addresses() {
        assert_eq!(addresses("0x10+17+x++0+0X1f"), [16, 17, 31]);
        assert_eq!(addresses(""), [0_usize; 0]);
        assert_eq!(addresses(&"1+".repeat(5000)).len(), MAX_SYMBOLS);
        let names = [(16, Some("main".to_owned())), (17, None)];
        assert_eq!(symbols(names.into_iter()), "num_symbols: 1\n0x10 main\n");
    }

    #[test]
    fn the_index_lists_the_pages_and_services() {
        let page = index(["pleg", "prober"].into_iter());
        for part in [
            "href='heap'",
            "href='profile'",
            "href='trace'",
            "pleg, prober",
        ] {
            assert!(page.contains(part), "{page}");
        }
    }
}
