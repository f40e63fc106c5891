//! Texts for people: durations, and texts of others that must not do harm.

/// A duration in microseconds, in milliseconds or seconds.
pub(crate) fn duration(micros: f64) -> String {
    let millis = micros / 1000.0;
    if millis.abs() < 9_999.95 {
        format!("{millis:.1}ms")
    } else {
        format!("{:.1}s", millis / 1000.0)
    }
}

/// The same with its sign; without one if it is displayed as zero.
pub(crate) fn signed(micros: f64) -> String {
    match duration(micros) {
        text if text == "-0.0ms" || text == "0.0ms" => "0.0ms".to_owned(),
        text if text.starts_with('-') => text,
        text => format!("+{text}"),
    }
}

/// A probability.
pub(crate) fn probability(p: f64) -> String {
    if p < 0.001 {
        "<0.001".to_owned()
    } else {
        format!("{p:.3}")
    }
}

/// The first characters of a text, with replacements for those that control a terminal or the direction of writing.
pub(crate) fn printable(text: &str, most: usize) -> String {
    let is_directional = |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let is_noncharacter = |c: char| matches!(c, '\u{fffe}' | '\u{ffff}');
    let shown = text.chars().take(most);
    let mut shown: String = shown
        .map(|c| match c {
            '\n' | '\t' | '\r' => ' ',
            c if c.is_control() || is_directional(c) || is_noncharacter(c) => '\u{fffd}',
            c => c,
        })
        .collect();
    if text.chars().nth(most).is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_one_decimal() {
        let texts = [1_234.0, 12_300_000.0, 9_999_960.0].map(duration);
        assert_eq!(texts, ["1.2ms", "12.3s", "10.0s"]);
        let texts = [20_400.0, -20_400.0, -4.0, 0.0].map(signed);
        assert_eq!(texts, ["+20.4ms", "-20.4ms", "0.0ms", "0.0ms"]);
        assert_eq!(
            [0.0, 0.0123, 1.0].map(probability),
            ["<0.001", "0.012", "1.000"]
        );
    }

    #[test]
    fn what_controls_a_terminal_is_replaced() {
        assert_eq!(printable("a\u{1b}[31m\0\nb", 99), "a\u{fffd}[31m\u{fffd} b");
        assert_eq!(printable("\u{202e}x\u{ffff}", 99), "\u{fffd}x\u{fffd}");
        assert_eq!(printable("12345", 4), "1234…");
        assert_eq!(printable("1234", 4), "1234");
    }
}
