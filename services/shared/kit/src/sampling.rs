//! Which traces are exported: decided by trace ID, so that all processes decide alike. It says nothing about what is
//! recorded on the node, which is everything.

use opentelemetry::trace::{Link, SpanKind, TraceContextExt, TraceFlags, TraceId};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::trace::{SamplingDecision, SamplingResult, ShouldSample};

use crate::config::KubeletConfiguration;

/// The variable that names the sampler, and the one with its argument.
const SAMPLER: &str = "OTEL_TRACES_SAMPLER";
const ARGUMENT: &str = "OTEL_TRACES_SAMPLER_ARG";
/// Upper bound of the number that a trace ID comes to.
const RANGE: u64 = 1 << 63;

/// A flag of contexts within the node: the trace continues one from outside, whose sampled flag decides.
pub const JOINED: TraceFlags = TraceFlags::new(0x80);

/// Which traces are exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceSampler {
    /// Traces whose number is below this are exported.
    threshold: u64,
    /// Traces that continue one from outside are judged like the others.
    ignores_parent: bool,
}

impl Default for TraceSampler {
    /// All traces that begin on this node.
    fn default() -> TraceSampler {
        TraceSampler::with_ratio(1.0, false)
    }
}

impl TraceSampler {
    /// The sampler that the environment names, or else the configuration. When the configuration has no `tracing`,
    /// everything is exported that there is an exporter for, as OpenTelemetry's default is.
    ///
    /// The second value is a warning about the environment.
    pub fn from_settings(
        config: &KubeletConfiguration,
        environment: impl Fn(&str) -> Option<String>,
    ) -> (TraceSampler, Option<String>) {
        let tracing = config.tracing.as_ref();
        let configured = match tracing {
            Some(tracing) => {
                let rate = tracing.sampling_rate_per_million.unwrap_or_default();
                f64::from(rate) / 1_000_000.0
            }
            None => 1.0,
        };
        let from_file = TraceSampler::with_ratio(configured, false);
        let Some(name) = environment(SAMPLER).filter(|name| !name.is_empty()) else {
            return (from_file, None);
        };
        let argument = environment(ARGUMENT).filter(|argument| !argument.is_empty());
        let ratio = match argument.as_deref().map(str::parse::<f64>) {
            None => Some(1.0),
            Some(Ok(ratio)) if (0.0..=1.0).contains(&ratio) => Some(ratio),
            Some(_) => None,
        };
        let (ratio, ignores_parent) = match name.trim() {
            "always_on" => (Some(1.0), true),
            "always_off" => (Some(0.0), true),
            "traceidratio" => (ratio, true),
            "parentbased_always_on" => (Some(1.0), false),
            "parentbased_always_off" => (Some(0.0), false),
            "parentbased_traceidratio" => (ratio, false),
            _ => {
                let warning = format!("{SAMPLER}={name} is not supported and is ignored");
                return (from_file, Some(warning));
            }
        };
        match ratio {
            Some(ratio) => (TraceSampler::with_ratio(ratio, ignores_parent), None),
            None => {
                let argument = argument.unwrap_or_default();
                let warning = format!(
                    "{ARGUMENT}={argument} is not allowed; allowed is a number from 0 to 1"
                );
                (from_file, Some(warning))
            }
        }
    }

    fn with_ratio(ratio: f64, ignores_parent: bool) -> TraceSampler {
        // Exact for the bounds; between them, conversions of floating point numbers saturate.
        let threshold = if ratio >= 1.0 {
            RANGE
        } else {
            (ratio.max(0.0) * RANGE as f64) as u64
        };
        TraceSampler {
            threshold,
            ignores_parent,
        }
    }

    /// Whether a trace that begins on this node is exported, as OpenTelemetry's SDKs decide by the ID.
    pub fn samples(&self, trace: [u8; 16]) -> bool {
        let [.., a, b, c, d, e, f, g, h] = trace;
        u64::from_be_bytes([a, b, c, d, e, f, g, h]) >> 1 < self.threshold
    }

    /// The same of any trace, by the flags of one of its spans, too.
    pub fn samples_span(&self, trace: [u8; 16], flags: u32) -> bool {
        let is = |flag: TraceFlags| flags & u32::from(flag.to_u8()) != 0;
        if is(JOINED) && !self.ignores_parent {
            return is(TraceFlags::SAMPLED);
        }
        self.samples(trace)
    }
}

/// Records every span. The sampled flag says what the node exports, for programs that the context is passed to.
#[derive(Debug, Clone)]
pub(crate) struct RecordEverything(pub(crate) TraceSampler);

impl ShouldSample for RecordEverything {
    fn should_sample(
        &self,
        parent: Option<&Context>,
        trace: TraceId,
        _: &str,
        _: &SpanKind,
        _: &[KeyValue],
        _: &[Link],
    ) -> SamplingResult {
        let parent = parent.map(|context| context.span().span_context().clone());
        let flags = parent.as_ref().map(|parent| parent.trace_flags());
        let flags = u32::from(flags.unwrap_or_default().to_u8());
        let decision = if self.0.samples_span(trace.to_bytes(), flags) {
            SamplingDecision::RecordAndSample
        } else {
            SamplingDecision::RecordOnly
        };
        SamplingResult {
            decision,
            attributes: Vec::new(),
            trace_state: parent
                .map(|parent| parent.trace_state().clone())
                .unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Tracing;
    use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator};

    fn sampler(
        rate: Option<Option<i32>>,
        environment: &[(&str, &str)],
    ) -> (TraceSampler, Option<String>) {
        let config = KubeletConfiguration {
            tracing: rate.map(|sampling_rate_per_million| Tracing {
                endpoint: None,
                sampling_rate_per_million,
            }),
            ..KubeletConfiguration::default()
        };
        TraceSampler::from_settings(&config, |name| {
            let variable = environment.iter().find(|(known, _)| *known == name);
            variable.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn the_environment_wins_over_the_file() {
        let of = TraceSampler::with_ratio;
        for (rate, environment, expected) in [
            (None, &[][..], of(1.0, false)),
            (Some(None), &[], of(0.0, false)),
            (Some(Some(250_000)), &[], of(0.25, false)),
            (Some(Some(1)), &[(SAMPLER, "always_on")], of(1.0, true)),
            (
                Some(Some(1_000_000)),
                &[(SAMPLER, "always_off")],
                of(0.0, true),
            ),
            (None, &[(SAMPLER, "parentbased_always_off")], of(0.0, false)),
            (
                None,
                &[(SAMPLER, "traceidratio"), (ARGUMENT, "0.5")],
                of(0.5, true),
            ),
            (
                None,
                &[(SAMPLER, "parentbased_traceidratio"), (ARGUMENT, "0.1")],
                of(0.1, false),
            ),
            (Some(None), &[(SAMPLER, "")], of(0.0, false)),
        ] {
            assert_eq!(
                sampler(rate, environment),
                (expected, None),
                "{rate:?} {environment:?}"
            );
        }
        for (environment, warning) in [
            (
                &[(SAMPLER, "jaeger_remote")][..],
                "OTEL_TRACES_SAMPLER=jaeger_remote is not supported and is ignored",
            ),
            (
                &[(SAMPLER, "traceidratio"), (ARGUMENT, "2")],
                "OTEL_TRACES_SAMPLER_ARG=2 is not allowed; allowed is a number from 0 to 1",
            ),
        ] {
            let expected = (of(0.5, false), Some(warning.to_owned()));
            assert_eq!(sampler(Some(Some(500_000)), environment), expected);
        }
    }

    #[test]
    fn the_rate_holds_over_many_traces() {
        let ids = RandomIdGenerator::default();
        for (ratio, low, high) in [(0.0, 0, 0), (1.0, 2_000, 2_000), (0.25, 400, 600)] {
            let sampler = TraceSampler::with_ratio(ratio, false);
            let sampled = (0..2_000).filter(|_| sampler.samples(ids.new_trace_id().to_bytes()));
            let sampled = sampled.count();
            assert!((low..=high).contains(&sampled), "{ratio}: {sampled}");
        }
    }

    #[test]
    fn traces_from_outside_are_exported_as_their_parents() {
        let joined = u32::from(JOINED.to_u8());
        let (on, off) = (
            TraceSampler::with_ratio(1.0, false),
            TraceSampler::with_ratio(0.0, false),
        );
        assert!(off.samples_span([1; 16], joined | 1) && !on.samples_span([1; 16], joined));
        assert!(on.samples_span([1; 16], 0) && !off.samples_span([1; 16], 1));
        let always = TraceSampler::with_ratio(1.0, true);
        assert!(always.samples_span([1; 16], joined));
    }
}
