use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// How long to wait after failures: doubling from the first to the longest wait, each stretched by
/// up to a half at random, so that a thousand nodes do not come back at once.
#[derive(Debug)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    next: Duration,
    until: Option<Instant>,
}

impl Backoff {
    /// From the first wait to the longest.
    pub fn new(first: Duration, longest: Duration) -> Backoff {
        Backoff {
            first,
            longest,
            next: first,
            until: None,
        }
    }

    /// Notes a failure, and how long the server asked to be left alone, if it did.
    pub fn failed(&mut self, asked: Option<Duration>) -> Duration {
        let stretched = self.next.mul_f64(1.0 + random() / 2.0);
        let wait = stretched.max(asked.unwrap_or_default());
        self.next = (self.next * 2).min(self.longest);
        self.until = Some(Instant::now() + wait);
        wait
    }

    /// Something succeeded: the next failure is a first one.
    pub fn succeeded(&mut self) {
        self.next = self.first;
        self.until = None;
    }

    /// Waits as long as the last failure asks for.
    pub async fn wait(&mut self) {
        if let Some(until) = self.until.take() {
            sleep_until(until).await;
        }
    }
}

/// Between 0 and 1, to spread what many nodes do at once; the standard library seeds each of its hashers at random.
pub fn random() -> f64 {
    use std::hash::{BuildHasher, Hasher};
    let drawn = std::collections::hash_map::RandomState::new()
        .build_hasher()
        .finish();
    (drawn >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_and_obey_the_server() {
        let ms = Duration::from_millis;
        let mut backoff = Backoff::new(ms(100), ms(400));
        for least in [100, 200, 400, 400] {
            let wait = backoff.failed(None);
            assert!(
                wait >= ms(least) && wait <= ms(least).mul_f64(1.5),
                "{wait:?} {least}"
            );
        }
        assert!(backoff.failed(Some(ms(5000))) >= ms(5000));
        backoff.succeeded();
        assert!(backoff.failed(None) <= ms(150));
    }
}
