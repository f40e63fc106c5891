use std::time::Instant;

/// A numbered step with the time it took.
#[derive(Debug)]
pub(crate) struct Step {
    begun: Instant,
}

/// How many steps there are.
const STEPS: u32 = 5;

impl Step {
    pub(crate) fn begin(number: u32, what: &str) -> Self {
        println!("\n[{number}/{STEPS}] {what}");
        Self {
            begun: Instant::now(),
        }
    }

    pub(crate) fn done(self, what: &str) {
        line(&format!(
            "{what} ({:.1} s)",
            self.begun.elapsed().as_secs_f64()
        ));
    }
}

/// A line within a step.
pub(crate) fn line(text: &str) {
    println!("      {text}");
}
