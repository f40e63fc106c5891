use std::time::Duration;

/// Test counts from the result lines of test programs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: u32,
    pub(crate) failed: u32,
    pub(crate) ignored: u32,
}

impl Counts {
    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
    }

    /// Parses `test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; …`.
    pub(crate) fn read(line: &str) -> Option<Self> {
        let (_, numbers) = line.strip_prefix("test result: ")?.split_once(". ")?;
        let mut counts = Self::default();
        for part in numbers.split(';') {
            let (number, word) = part.trim().split_once(' ')?;
            let number = number.parse().unwrap_or_default();
            match word {
                "passed" => counts.passed = number,
                "failed" => counts.failed = number,
                "ignored" => counts.ignored = number,
                _ => {}
            }
        }
        Some(counts)
    }
}

/// A step with its result.
#[derive(Debug)]
struct ResultLine {
    name: String,
    good: bool,
    counts: Counts,
    took: Duration,
}

/// The results of all steps.
#[derive(Debug, Default)]
pub(crate) struct Summary {
    lines: Vec<ResultLine>,
}

impl Summary {
    /// Adds a check that passes or fails as a whole.
    pub(crate) fn check(&mut self, name: &str, good: bool, took: Duration) {
        let counts = Counts {
            failed: u32::from(!good),
            ..Counts::default()
        };
        self.lines.push(ResultLine {
            name: name.to_owned(),
            good,
            counts,
            took,
        });
    }

    /// Adds a step with test counts.
    pub(crate) fn tests(&mut self, name: &str, counts: Counts, took: Duration) {
        let good = counts.failed == 0;
        self.lines.push(ResultLine {
            name: name.to_owned(),
            good,
            counts,
            took,
        });
    }

    pub(crate) fn is_good(&self) -> bool {
        self.lines.iter().all(|line| line.good)
    }

    /// Prints a table of the steps, followed by the totals.
    pub(crate) fn print(&self) {
        println!();
        let mut all = Counts::default();
        for line in &self.lines {
            let word = if line.good { "ok" } else { "FAILED" };
            let seconds = line.took.as_secs();
            let counts = if line.counts.passed + line.counts.failed > 1 {
                format!(
                    "{} passed, {} failed",
                    line.counts.passed, line.counts.failed
                )
            } else {
                String::new()
            };
            println!("{:<34} {word:<7} {seconds:>5} s  {counts}", line.name);
            all.add(line.counts);
        }
        println!(
            "{} passed, {} failed, {} ignored",
            all.passed, all.failed, all.ignored
        );
    }
}

/// Prints the title of a step.
pub(crate) fn title(text: &str) {
    println!("\n== {text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_result_line_of_a_test_program() {
        let line = "test result: FAILED. 3 passed; 2 failed; 1 ignored; 0 measured; 4 filtered out; finished in 0.1s";
        assert_eq!(
            Counts::read(line),
            Some(Counts {
                passed: 3,
                failed: 2,
                ignored: 1
            })
        );
        assert_eq!(Counts::read("test a::b ... ok"), None);
    }

    #[test]
    fn one_failure_spoils_the_sum() {
        let mut summary = Summary::default();
        summary.check("fmt", true, Duration::ZERO);
        assert!(summary.is_good());
        summary.tests(
            "unit",
            Counts {
                passed: 5,
                failed: 1,
                ignored: 0,
            },
            Duration::ZERO,
        );
        assert!(!summary.is_good());
    }
}
