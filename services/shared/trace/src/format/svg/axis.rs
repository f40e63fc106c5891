//! The axis of time.

/// A mark on the axis.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tick {
    /// Nanoseconds since the start.
    pub(super) at: i128,
    pub(super) label: String,
}

/// Marks at round times, twelve at most.
pub(super) fn ticks(length: i128) -> Vec<Tick> {
    let steps = (0..28).flat_map(|power| [1, 2, 5].map(|digit| digit * 10_i128.pow(power) * 1000));
    let mut steps = steps.skip_while(|step| length / step > 11);
    let Some(step) = steps.next() else {
        return Vec::new();
    };
    let tick = |number: i128| {
        let at = number * step;
        Tick {
            at,
            label: label(at, step),
        }
    };
    (0..=length.max(0) / step).map(tick).collect()
}

/// In the unit that suits the distance between marks.
fn label(at: i128, step: i128) -> String {
    let (unit, name) = match step {
        ..1_000_000 => (1000, "µs"),
        1_000_000..1_000_000_000 => (1_000_000, "ms"),
        _ => (1_000_000_000, "s"),
    };
    format!("{} {name}", at / unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_at_round_times() {
        let labels = |length| -> Vec<String> {
            let ticks = ticks(length).into_iter();
            ticks.map(|tick| tick.label).collect()
        };
        assert_eq!(
            labels(812_000_000).join(" "),
            "0 ms 100 ms 200 ms 300 ms 400 ms 500 ms 600 ms 700 ms 800 ms"
        );
        assert_eq!(labels(4_000).join(" "), "0 µs 1 µs 2 µs 3 µs 4 µs");
        assert_eq!(
            labels(25_000_000_000).join(" "),
            "0 s 5 s 10 s 15 s 20 s 25 s"
        );
        assert_eq!(labels(0), ["0 µs"]);
        for power in 0..27 {
            assert!(
                (1..=12).contains(&labels(7 * 10_i128.pow(power)).len()),
                "{power}"
            );
        }
    }
}
