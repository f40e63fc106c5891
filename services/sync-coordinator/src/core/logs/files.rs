//! The files of one log: which go, which are packed, what the next one is called.

use jiff::civil::DateTime;
use jiff::{SignedDuration, Timestamp, tz::TimeZone};
use polylet_cri::log::{Form, Rotated};

const STAMP: &str = "%Y%m%d-%H%M%S";

/// What is to be done with the rotated files of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Upkeep {
    /// Names of files that go.
    pub remove: Vec<String>,
    /// Names of files that are packed.
    pub pack: Vec<String>,
}

/// Brings the rotated files of `log` in order, which is not among `files` it may have. As upstream:
/// what was left unfinished goes, and what is there packed as well; the oldest go beyond the limit;
/// all are packed but the newest, which its readers may not have finished with.
pub fn upkeep(log: &str, names: &[String], files: usize) -> Upkeep {
    let mut upkeep = Upkeep::default();
    let mut found: Vec<Rotated<'_>> = names
        .iter()
        .filter_map(|name| Rotated::parse(log, name))
        .collect();
    found.sort_unstable();
    let packed = |one: &Rotated<'_>| {
        found.contains(&Rotated {
            form: Form::Packed,
            ..*one
        })
    };
    let (good, bad): (Vec<Rotated<'_>>, Vec<Rotated<'_>>) =
        found.iter().copied().partition(|one| match one.form {
            Form::Plain => !packed(one),
            Form::Packed => true,
            Form::Unfinished => false,
        });
    let excess = good.len().saturating_sub(files.saturating_sub(1));
    let (old, kept) = good.split_at(excess);
    upkeep.remove = bad.iter().chain(old).map(|one| one.name(log)).collect();
    if let Some((_newest, older)) = kept.split_last() {
        let plain = older.iter().filter(|one| one.form == Form::Plain);
        upkeep.pack = plain.map(|one| one.name(log)).collect();
    }
    upkeep
}

/// What `log` is called after a rotation now: by the time in UTC, and always after those that are
/// there, whatever the clock says.
pub fn next_name(log: &str, names: &[String], now: Timestamp) -> String {
    let mut time = now.to_zoned(TimeZone::UTC).datetime();
    let newest = names
        .iter()
        .filter_map(|name| Rotated::parse(log, name))
        .filter_map(|one| DateTime::strptime(STAMP, one.stamp).ok())
        .max();
    if let Some(newest) = newest {
        time = time.max(newest.saturating_add(SignedDuration::from_secs(1)));
    }
    let stamp = time.strftime(STAMP).to_string();
    let form = Form::Plain;
    Rotated {
        stamp: &stamp,
        form,
    }
    .name(log)
}
