//! systemd slices of pods, with the systemd cgroup driver: systemd removes cgroups that it has not
//! created, and resets limits that it does not know.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use polylet_model::resources;
use zbus::Connection;
use zbus::Variant;

use super::limits::Limits;

const SYSTEMD: &str = "org.freedesktop.systemd1";
const PATH: &str = "/org/freedesktop/systemd1";
const MANAGER: &str = "org.freedesktop.systemd1.Manager";
/// The timeout of calls: systemd does not answer during a reload.
const TIMEOUT: Duration = Duration::from_secs(10);

type Properties = Vec<(&'static str, Variant<'static>)>;

/// A slice could not be changed.
#[derive(Debug, thiserror::Error)]
pub(super) enum SliceError {
    /// The system bus cannot be reached.
    #[error("connecting to the system bus")]
    Bus {
        /// The error of the bus.
        #[source]
        source: zbus::Error,
    },
    /// systemd refused the call, or did not answer.
    #[error("calling {method} of systemd for {slice}")]
    Call {
        /// Name of the D-Bus method.
        method: &'static str,
        /// Name of the slice.
        slice: String,
        /// The error of the bus.
        #[source]
        source: zbus::Error,
    },
}

/// The slices that this process instance has created.
#[derive(Default)]
pub(super) struct Slices {
    bus: RefCell<Option<Connection>>,
    known: RefCell<BTreeMap<String, Limits>>,
}

impl Slices {
    /// Ensures that a slice exists with these limits. A repeated call does nothing.
    pub(super) async fn ensure(
        &self,
        slice: &str,
        limits: &Limits,
        unified: bool,
    ) -> Result<(), SliceError> {
        let known = self.known.borrow().get(slice).cloned();
        if known.as_ref() == Some(limits) {
            return Ok(());
        }
        let properties = limit_properties(limits, unified);
        if known.is_none() {
            let mut all = slice_properties(slice);
            all.extend(properties.iter().map(|(name, value)| (*name, clone(value))));
            let none: Vec<(&str, Properties)> = Vec::new();
            let started = self
                .call("StartTransientUnit", slice, &(slice, "replace", all, none))
                .await;
            match started {
                Err(error) if !error.is("UnitExists") => return Err(error),
                Err(_) => self.set(slice, properties).await?,
                Ok(()) => {}
            }
        } else {
            self.set(slice, properties).await?;
        }
        self.known
            .borrow_mut()
            .insert(slice.to_owned(), limits.clone());
        Ok(())
    }

    /// Stops a slice if it exists.
    pub(super) async fn stop(&self, slice: &str) -> Result<(), SliceError> {
        self.known.borrow_mut().remove(slice);
        match self.call("StopUnit", slice, &(slice, "replace")).await {
            Err(error) if !error.is("NoSuchUnit") => Err(error),
            _ => Ok(()),
        }
    }

    async fn set(&self, slice: &str, properties: Properties) -> Result<(), SliceError> {
        // Until the next boot: a slice of a pod has no unit file.
        let runtime = true;
        self.call("SetUnitProperties", slice, &(slice, runtime, properties))
            .await
    }

    async fn call<B>(&self, method: &'static str, slice: &str, body: &B) -> Result<(), SliceError>
    where
        B: serde::Serialize + zbus::zvariant::DynamicType,
    {
        let bus = self.bus().await?;
        let called = bus
            .call_method(Some(SYSTEMD), PATH, Some(MANAGER), method, body)
            .await;
        let Err(source) = called else { return Ok(()) };
        if !matches!(source, zbus::Error::MethodError(..)) {
            // The bus may have restarted: the next call connects again.
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
        let builder = zbus::connection::Builder::system().method_timeout(TIMEOUT);
        let bus = tokio::time::timeout(TIMEOUT, builder.build())
            .await
            .unwrap_or_else(|_| Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()))
            .map_err(|source| SliceError::Bus { source })?;
        self.bus.borrow_mut().replace(bus.clone());
        Ok(bus)
    }
}

impl SliceError {
    /// Whether this is an error of systemd with this name.
    fn is(&self, name_suffix: &str) -> bool {
        matches!(
            self,
            Self::Call { source: zbus::Error::MethodError(name, _, _), .. }
                if name.as_str().strip_prefix(SYSTEMD) == Some(&format!(".{name_suffix}"))
        )
    }
}

/// The properties of every slice. Its name determines its parent.
fn slice_properties(slice: &str) -> Properties {
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

/// The properties for limits.
fn limit_properties(limits: &Limits, unified: bool) -> Properties {
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

/// `CPUQuotaPerSecUSec` of a quota, rounded up to 1 %: systemd truncates to that, which would give the
/// pod less than its limit.
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

/// Clones a value; only file descriptors, which do not occur here, cannot be cloned.
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

    fn values_of(limits: &Limits, unified: bool) -> Vec<(&'static str, u64)> {
        let all = limit_properties(limits, unified);
        all.iter()
            .map(|(name, value)| (*name, u64::try_from(clone(value)).unwrap()))
            .collect()
    }

    #[test]
    fn properties_of_limits_for_both_versions() {
        let some = limits(Some(25_000), Some(1 << 20), 100);
        assert_eq!(
            values_of(&some, false),
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
        assert_eq!(values_of(&none, true), [weight]);
        let promised = Limits {
            files: [("memory.low".to_owned(), "4096".to_owned())].into(),
            ..none
        };
        assert_eq!(values_of(&promised, true), [weight, ("MemoryLow", 4096)]);
        assert_eq!(values_of(&promised, false), [("CPUShares", 1024)]);
    }

    #[test]
    fn quota_is_rounded_up_to_the_resolution_of_systemd() {
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
