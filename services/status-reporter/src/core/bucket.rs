//! How often something may be done.

use std::time::Duration;

/// A moment, as time since a fixed start.
pub(crate) type Moment = Duration;

/// So many at once, and then so many a second.
#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    /// None for no limit.
    per_second: Option<f64>,
    most: f64,
    left: f64,
    at: Moment,
}

impl Bucket {
    /// A full one. A rate of zero or less is no limit.
    pub(crate) fn new(per_second: f64, most: f64) -> Self {
        Self {
            per_second: Some(per_second).filter(|rate| *rate > 0.0),
            most: most.max(1.0),
            left: most.max(1.0),
            at: Moment::ZERO,
        }
    }

    /// Takes one out; else tells when there will be one.
    pub(crate) fn take(&mut self, now: Moment) -> Result<(), Moment> {
        let Some(rate) = self.per_second else {
            return Ok(());
        };
        let passed = now.saturating_sub(self.at).as_secs_f64();
        self.left = (self.left + passed * rate).min(self.most);
        self.at = self.at.max(now);
        if self.left >= 1.0 {
            self.left -= 1.0;
            return Ok(());
        }
        // A little late, so that it is there when one looks.
        let wait = Duration::try_from_secs_f64((1.0 - self.left) / rate);
        Err(now + wait.unwrap_or(Duration::from_secs(3600)) + Duration::from_micros(50))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_at_once_and_then_by_the_clock() {
        let mut bucket = Bucket::new(10.0, 3.0);
        let ms = Duration::from_millis;
        for _ in 0..3 {
            assert_eq!(bucket.take(ms(5)), Ok(()));
        }
        let next = bucket.take(ms(5)).unwrap_err();
        assert!(next > ms(104) && next < ms(107), "{next:?}");
        assert_eq!(bucket.take(next), Ok(()));
        assert!(bucket.take(next).is_err());
        let mut free = Bucket::new(0.0, 0.0);
        assert!((0..1000).all(|_| free.take(ms(0)).is_ok()));
    }
}
