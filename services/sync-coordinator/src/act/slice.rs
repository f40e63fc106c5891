//! Slices of pods, where systemd owns the cgroups: what it did not make itself it takes away, and
//! limits that it was not told of it sets back.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use polylet_model::resources;
use zbus::Connection;
use zbus::Variant;

use super::cgroup::limits::Limits;

const SYSTEMD: &str = "org.freedesktop.systemd1";
const PATH: &str = "/org/freedesktop/systemd1";
const MANAGER: &str = "org.freedesktop.systemd1.Manager";
/// A manager that is busy with a reload answers late.
const PATIENCE: Duration = Duration::from_secs(10);

type Properties = Vec<(&'static str, Variant<'static>)>;

/// Why a slice could not be had.
#[derive(Debug, thiserror::Error)]
pub enum SliceError {
    /// The system bus cannot be reached.
    #[error("system bus")]
    Bus {
        /// What it said.
        #[source]
        source: zbus::Error,
    },
    /// Systemd refused, or did not answer.
    #[error("systemd: {method} {slice}")]
    Call {
        /// What it was asked.
        method: &'static str,
        /// Which slice.
        slice: String,
        /// What it said.
        #[source]
        source: zbus::Error,
    },
}

/// The slices that systemd was asked for in this life.
#[derive(Default)]
pub struct Slices {
    bus: RefCell<Option<Connection>>,
    known: RefCell<BTreeMap<String, Limits>>,
}

impl Slices {
    /// Sees to it that a slice stands with these limits. Repeating is free.
    pub async fn ensure(
        &self,
        slice: &str,
        limits: &Limits,
        unified: bool,
    ) -> Result<(), SliceError> {
        let known = self.known.borrow().get(slice).cloned();
        if known.as_ref() == Some(limits) {
            return Ok(());
        }
        let wanted = properties(limits, unified);
        if known.is_none() {
            let mut whole = standing(slice);
            whole.extend(wanted.iter().map(|(name, value)| (*name, clone(value))));
            let none: Vec<(&str, Properties)> = Vec::new();
            let asked = self
                .call(
                    "StartTransientUnit",
                    slice,
                    &(slice, "replace", whole, none),
                )
                .await;
            match asked {
                Err(error) if !error.is("UnitExists") => return Err(error),
                Err(_) => self.set(slice, wanted).await?,
                Ok(()) => {}
            }
        } else {
            self.set(slice, wanted).await?;
        }
        self.known
            .borrow_mut()
            .insert(slice.to_owned(), limits.clone());
        Ok(())
    }

    /// Ends a slice; fine when there is none.
    pub async fn stop(&self, slice: &str) -> Result<(), SliceError> {
        self.known.borrow_mut().remove(slice);
        match self.call("StopUnit", slice, &(slice, "replace")).await {
            Err(error) if !error.is("NoSuchUnit") => Err(error),
            _ => Ok(()),
        }
    }

    async fn set(&self, slice: &str, wanted: Properties) -> Result<(), SliceError> {
        // For as long as the machine runs: a slice of a pod has no file.
        let runtime = true;
        self.call("SetUnitProperties", slice, &(slice, runtime, wanted))
            .await
    }

    async fn call<B>(&self, method: &'static str, slice: &str, body: &B) -> Result<(), SliceError>
    where
        B: serde::Serialize + zbus::zvariant::DynamicType,
    {
        let bus = self.bus().await?;
        let asked = bus
            .call_method(Some(SYSTEMD), PATH, Some(MANAGER), method, body)
            .await;
        let Err(source) = asked else { return Ok(()) };
        if !matches!(source, zbus::Error::MethodError(..)) {
            // The bus may have been started anew: the next call knocks again.
            self.bus.borrow_mut().take();
        }
        let slice = slice.to_owned();
        Err(SliceError::Call {
            method,
            slice,
            source,
        })
    }

    async fn bus(&self) -> Result<Connection, SliceError> {
        if let Some(bus) = self.bus.borrow().as_ref() {
            return Ok(bus.clone());
        }
        let builder = zbus::connection::Builder::system().method_timeout(PATIENCE);
        let bus = tokio::time::timeout(PATIENCE, builder.build())
            .await
            .unwrap_or_else(|_| Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()))
            .map_err(|source| SliceError::Bus { source })?;
        self.bus.borrow_mut().replace(bus.clone());
        Ok(bus)
    }
}

impl SliceError {
    /// Whether systemd answered with one of its own errors.
    fn is(&self, word: &str) -> bool {
        matches!(
            self,
            Self::Call { source: zbus::Error::MethodError(name, _, _), .. }
                if name.as_str().strip_prefix(SYSTEMD) == Some(&format!(".{word}"))
        )
    }
}

/// What every slice of ours has. Its name says below which other one it is.
fn standing(slice: &str) -> Properties {
    let yes = |name| (name, Variant::from(true));
    vec![
        (
            "Description",
            Variant::from(format!("Kubernetes pods: {slice}")),
        ),
        ("DefaultDependencies", Variant::from(false)),
        yes("MemoryAccounting"),
        yes("CPUAccounting"),
        yes("IOAccounting"),
        yes("TasksAccounting"),
    ]
}

/// Limits in systemd's words.
fn properties(limits: &Limits, unified: bool) -> Properties {
    let mut all = Vec::new();
    if let Some(shares) = limits.cpu_shares {
        all.push(if unified {
            ("CPUWeight", Variant::from(resources::cpu_weight(shares)))
        } else {
            ("CPUShares", Variant::from(shares))
        });
    }
    let memory = if unified { "MemoryMax" } else { "MemoryLimit" };
    for (name, bound) in [(memory, limits.memory), ("TasksMax", limits.pids)] {
        if let Some(bound) = bound {
            let bound = u64::try_from(bound).ok().filter(|bound| *bound > 0);
            all.push((name, Variant::from(bound.unwrap_or(u64::MAX))));
        }
    }
    for (file, value) in limits.files.iter().filter(|_| unified) {
        let name = match file.as_str() {
            "memory.min" => "MemoryMin",
            "memory.low" => "MemoryLow",
            _ => continue,
        };
        all.push((name, Variant::from(value.parse().unwrap_or(0_u64))));
    }
    if let Some(quota) = limits.cpu_quota {
        let share = per_second(quota, limits.cpu_period);
        let period = u64::try_from(limits.cpu_period).unwrap_or(u64::MAX);
        all.push(("CPUQuotaPerSecUSec", Variant::from(share)));
        all.push(("CPUQuotaPeriodUSec", Variant::from(period)));
    }
    all
}

/// Microseconds of processor time in a second, in whole hundredths of it: systemd
/// would cut off what is below, and the pod would get less than it was promised.
fn per_second(quota: i64, period: i64) -> u64 {
    const STEP: u64 = 10_000;
    match (u64::try_from(quota), u64::try_from(period)) {
        (Ok(quota), Ok(period)) if quota > 0 && period > 0 => {
            let exact = quota.saturating_mul(1_000_000) / period;
            exact.div_ceil(STEP).saturating_mul(STEP)
        }
        _ => u64::MAX,
    }
}

/// Numbers and words can always be cloned; what could not is a file descriptor.
fn clone(value: &Variant<'static>) -> Variant<'static> {
    value.try_clone().unwrap_or_else(|_| Variant::from(0_u8))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(cpu_quota: Option<i64>, memory_limit: Option<i64>, pids: i64) -> Limits {
        Limits {
            cpu_shares: Some(1024),
            cpu_quota,
            cpu_period: 100_000,
            memory: memory_limit,
            pids: Some(pids).filter(|pids| *pids > 0),
            ..Limits::default()
        }
    }

    fn words(limits: &Limits, unified: bool) -> Vec<(&'static str, u64)> {
        let all = properties(limits, unified);
        all.iter()
            .map(|(name, value)| (*name, u64::try_from(clone(value)).unwrap()))
            .collect()
    }

    #[test]
    fn limits_in_the_words_of_both_versions() {
        let some = limits(Some(25_000), Some(1 << 20), 100);
        assert_eq!(
            words(&some, false),
            [
                ("CPUShares", 1024),
                ("MemoryLimit", 1 << 20),
                ("TasksMax", 100),
                ("CPUQuotaPerSecUSec", 250_000),
                ("CPUQuotaPeriodUSec", 100_000),
            ]
        );
        let none = limits(None, None, -1);
        let weight = ("CPUWeight", resources::cpu_weight(1024));
        assert_eq!(words(&none, true), [weight]);
        let promised = Limits {
            files: [("memory.low".to_owned(), "4096".to_owned())].into(),
            ..none
        };
        assert_eq!(words(&promised, true), [weight, ("MemoryLow", 4096)]);
        assert_eq!(words(&promised, false), [("CPUShares", 1024)]);
    }

    #[test]
    fn a_quota_is_rounded_up_to_what_systemd_can_hold() {
        for (quota, period, expected) in [
            (100_000, 100_000, 1_000_000),
            (1_000, 100_000, 10_000),
            (12_300, 100_000, 130_000),
            (-1, 100_000, u64::MAX),
            (1_000, 0, u64::MAX),
        ] {
            assert_eq!(per_second(quota, period), expected, "{quota}/{period}");
        }
    }
}
