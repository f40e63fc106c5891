//! Memory usage of the services.

/// The proportional set size of a process in bytes: its memory, with shared pages divided among the
/// processes that share them. Zero if it cannot be read.
pub(super) fn pss(pid: u32) -> u64 {
    let path = format!("/proc/{pid}/smaps_rollup");
    std::fs::read_to_string(path)
        .map(|text| parse(&text))
        .unwrap_or(0)
}

fn parse(smaps: &str) -> u64 {
    let kilobytes = smaps.lines().find_map(|line| {
        line.strip_prefix("Pss:")?
            .trim()
            .strip_suffix("kB")?
            .trim_end()
            .parse::<u64>()
            .ok()
    });
    kilobytes.unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pss_is_parsed() {
        assert!(pss(std::process::id()) > 0);
        assert_eq!(pss(0), 0);
        assert_eq!(parse("Rss:  9 kB\nPss:      3 kB\nPss_Dirty: 1 kB\n"), 3072);
        assert_eq!(parse("Pss: x kB"), 0);
    }
}
