//! Formatting of tables, durations, ages and sizes.

use std::time::Duration;

/// A table with aligned columns; the last one is never padded.
pub fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count())
            .max()
    };
    let widths: Vec<usize> = (0..columns)
        .map(|column| width(column).unwrap_or(0))
        .collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line.push_str(&format!("{cell:<width$}   "));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// An age in the format of `kubectl`.
pub fn age(seconds: i64) -> String {
    if seconds < -1 {
        return "<invalid>".to_owned();
    }
    let seconds = seconds.max(0);
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let (days, years) = (hours / 24, hours / 24 / 365);
    let two = |big: i64, unit: char, small: i64, small_unit: char| match small {
        0 => format!("{big}{unit}"),
        small => format!("{big}{unit}{small}{small_unit}"),
    };
    match () {
        () if seconds < 120 => format!("{seconds}s"),
        () if minutes < 10 => two(minutes, 'm', seconds % 60, 's'),
        () if minutes < 180 => format!("{minutes}m"),
        () if hours < 8 => two(hours, 'h', minutes % 60, 'm'),
        () if hours < 48 => format!("{hours}h"),
        () if hours < 192 => two(days, 'd', hours % 24, 'h'),
        () if years < 2 => format!("{days}d"),
        () if years < 8 => two(years, 'y', days % 365, 'd'),
        () => format!("{years}y"),
    }
}

/// The duration of a span.
pub fn duration(duration: Duration) -> String {
    let millis = duration.as_secs_f64() * 1000.0;
    if millis < 10_000.0 {
        format!("{millis:.1}ms")
    } else {
        format!("{:.1}s", millis / 1000.0)
    }
}

/// Bytes in MiB.
pub fn mebibytes(bytes: u64) -> String {
    #[allow(clippy::cast_precision_loss)] // displayed with one decimal
    let mib = bytes as f64 / f64::from(1 << 20);
    format!("{mib:.1}Mi")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_match_kubectl() {
        for (seconds, text) in [
            (-5, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (600, "10m"),
            (10_799, "179m"),
            (10_800, "3h"),
            (10_860, "3h1m"),
            (28_800, "8h"),
            (172_799, "47h"),
            (172_800, "2d"),
            (176_400, "2d1h"),
            (691_200, "8d"),
            (63_071_999, "729d"),
            (63_072_000, "2y"),
            (63_158_400, "2y1d"),
            (315_360_000, "10y"),
        ] {
            assert_eq!(age(seconds), text, "{seconds}");
        }
    }

    #[test]
    fn table_columns_are_aligned() {
        let rows = [
            vec!["A".to_owned(), "B".to_owned()],
            vec!["long".to_owned(), String::new()],
        ];
        assert_eq!(table(&rows), "A      B\nlong\n");
        assert_eq!(table(&[]), "");
    }

    #[test]
    fn durations_and_sizes() {
        assert_eq!(duration(Duration::from_micros(1_234)), "1.2ms");
        assert_eq!(duration(Duration::from_millis(12_300)), "12.3s");
        assert_eq!(mebibytes(3 << 19), "1.5Mi");
    }
}
