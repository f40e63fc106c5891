//! The two text formats of metrics, and which of them a scraper asks for.

/// A format of the text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExpositionFormat {
    /// Prometheus' own, version 0.0.4, as the kubelet serves it. It has no exemplars.
    #[default]
    Prometheus,
    /// OpenMetrics 1.0.0.
    OpenMetrics,
}

impl ExpositionFormat {
    /// The media type.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// The format that an `Accept` header prefers: OpenMetrics only if it is named, and not less wanted than the other
    /// one. Without a header, and for headers that name neither, Prometheus' own.
    pub fn negotiate(accept: &str) -> Self {
        let (mut open_metrics, mut prometheus) = (0.0_f64, 0.0_f64);
        for range in accept.split(',') {
            let mut parts = range.split(';').map(str::trim);
            let media_type = parts.next().unwrap_or_default().to_ascii_lowercase();
            let parameters: Vec<_> = parts.filter_map(|part| part.split_once('=')).collect();
            let parameter = |name: &str| {
                let mut parameters = parameters.iter();
                let found = parameters.find(|(key, _)| key.trim().eq_ignore_ascii_case(name));
                found.map(|(_, value)| value.trim().trim_matches('"'))
            };
            let weight = parameter("q").map_or(Some(1.0), |q| q.parse().ok());
            let weight = weight.filter(|q| (0.0..=1.0).contains(q)).unwrap_or(0.0);
            let version = parameter("version");
            match media_type.as_str() {
                // 0.0.1 is what version 1.0.0 was before it was published.
                "application/openmetrics-text"
                    if matches!(version, None | Some("1.0.0" | "0.0.1")) =>
                {
                    open_metrics = open_metrics.max(weight);
                }
                "text/plain" => prometheus = prometheus.max(weight),
                _ => {}
            }
        }
        if open_metrics > 0.0 && open_metrics >= prometheus {
            Self::OpenMetrics
        } else {
            Self::Prometheus
        }
    }

    /// The upper bound of a bucket. Readers of OpenMetrics compare bounds as texts, in the form that Go's programs give
    /// them.
    pub(crate) fn bound(self, bound: f64) -> String {
        match self {
            Self::Prometheus => bound.to_string(),
            Self::OpenMetrics if bound != 0.0 && !(1e-4..1e6).contains(&bound.abs()) => {
                let text = format!("{bound:e}");
                match text.split_once('e') {
                    Some((mantissa, exponent)) => {
                        let sign = if exponent.starts_with('-') { '-' } else { '+' };
                        let digits = exponent.trim_start_matches('-');
                        format!("{mantissa}e{sign}{digits:0>2}")
                    }
                    None => text,
                }
            }
            Self::OpenMetrics => format!("{bound:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openmetrics_is_served_to_those_who_ask_for_it() {
        use ExpositionFormat::{OpenMetrics, Prometheus};
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.8,\
                          application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        for (accept, expected) in [
            ("", Prometheus),
            ("*/*", Prometheus),
            ("text/plain", Prometheus),
            ("application/openmetrics-text", OpenMetrics),
            (prometheus, OpenMetrics),
            (
                "text/plain;q=1, application/openmetrics-text; version=1.0.0; q=0.5",
                Prometheus,
            ),
            (
                "application/openmetrics-text; version=\"1.0.0\"",
                OpenMetrics,
            ),
            ("application/openmetrics-text; version=2.0.0", Prometheus),
            ("application/openmetrics-text; q=0", Prometheus),
            ("application/openmetrics-text; q=NaN", Prometheus),
            (";;=,,q=;", Prometheus),
        ] {
            assert_eq!(ExpositionFormat::negotiate(accept), expected, "{accept}");
        }
    }

    #[test]
    fn bounds_have_the_canonical_form_of_openmetrics() {
        for (bound, expected) in [
            (0.0, "0.0"),
            (0.001, "0.001"),
            (1.0, "1.0"),
            (60.0, "60.0"),
            (2.5, "2.5"),
            (1e5, "100000.0"),
            (1e6, "1e+06"),
            (2.5e6, "2.5e+06"),
            (1e-5, "1e-05"),
        ] {
            assert_eq!(ExpositionFormat::OpenMetrics.bound(bound), expected);
        }
        assert_eq!(ExpositionFormat::Prometheus.bound(1.0), "1");
    }
}
