use super::super::problems::Problems;
use super::super::{KubeletConfiguration, PolyletTracing};

/// Upstream's validation of the export of traces, with its messages.
pub(super) fn export(config: &KubeletConfiguration, problems: &mut Problems) {
    let Some(tracing) = &config.tracing else {
        return;
    };
    let mut invalid = |field: &str, value: String, message: &str| {
        problems.add(
            &format!("tracing.{field}"),
            format!("Invalid value: {value}: {message}"),
        );
    };
    let field = "samplingRatePerMillion";
    match tracing.sampling_rate_per_million {
        Some(rate) if rate < 0 => {
            invalid(field, rate.to_string(), "sampling rate must be positive");
        }
        Some(rate) if rate > 1_000_000 => {
            let message = "sampling rate per million must be less than or equal to one million";
            invalid(field, rate.to_string(), message);
        }
        _ => {}
    }
    let Some(endpoint) = &tracing.endpoint else {
        return;
    };
    let endpoint = if endpoint.contains("//") {
        endpoint.clone()
    } else {
        format!("dns://{endpoint}")
    };
    let value = format!("{endpoint:?}");
    match endpoint.split_once("://").map(|(scheme, _)| scheme) {
        Some("dns" | "unix" | "unix-abstract") => {}
        Some(scheme) => {
            let message = format!(
                "unsupported scheme: {scheme}.  Options are none, dns, unix, or unix-abstract.  \
                 See https://github.com/grpc/grpc/blob/master/doc/naming.md"
            );
            invalid("endpoint", value, &message);
        }
        None => invalid("endpoint", value, "missing protocol scheme"),
    }
}

/// Validation of Polylet's own settings of traces.
pub(super) fn polylet(tracing: &PolyletTracing, problems: &mut Problems) {
    let slowest = tracing.tail_sampling.slowest;
    problems.within("tracing.tailSampling.slowest", slowest, 0, 100);
    if let Some(address) = tracing.receive
        && !address.ip().is_loopback()
    {
        // Whoever reaches it can add spans.
        let allowed = "allowed are loopback addresses with a port";
        problems.not_allowed("tracing.receive", address, allowed);
    }
}
