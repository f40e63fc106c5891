use std::time::Instant;

/// Counts the steps.
#[derive(Debug)]
pub(crate) struct Steps {
    begun: u32,
    all: u32,
}

impl Steps {
    pub(crate) fn new(all: u32) -> Self {
        Self { begun: 0, all }
    }

    pub(crate) fn begin(&mut self, what: &str) -> Step {
        self.begun += 1;
        println!("\n[{}/{}] {what}", self.begun, self.all);
        Step {
            begun: Instant::now(),
        }
    }
}

/// A numbered step with the time it took.
#[derive(Debug)]
pub(crate) struct Step {
    begun: Instant,
}

impl Step {
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
