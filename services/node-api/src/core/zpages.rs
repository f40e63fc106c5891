//! What `/statusz` and `/flagz` contain.

use std::collections::BTreeMap;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::{Value, json};

use super::page_form::{GROUP, PageKind, PageVersion};

/// The name of the component, which is the kubelet's.
const COMPONENT: &str = "kubelet";

/// What `/statusz` says.
#[derive(Clone, Debug)]
pub(crate) struct ComponentStatus {
    pub(crate) started_at: Timestamp,
    /// The version of Kubernetes.
    pub(crate) version: &'static str,
    pub(crate) paths: Vec<&'static str>,
}

impl ComponentStatus {
    fn uptime(&self, now: Timestamp) -> i64 {
        now.duration_since(self.started_at).as_secs().max(0)
    }

    fn emulation_version(&self) -> &str {
        let patch = self.version.rsplit_once('.');
        patch.map_or(self.version, |(minor, _)| minor)
    }

    /// The structure. There is no version of Go.
    pub(crate) fn structure(&self, version: PageVersion, now: Timestamp) -> Value {
        let started = self.started_at.as_second();
        let started = Timestamp::from_second(started).unwrap_or(self.started_at);
        json!({
            "kind": "Statusz",
            "apiVersion": format!("{GROUP}/{}", version.name()),
            "metadata": {"name": COMPONENT},
            "startTime": started.to_string(),
            "uptimeSeconds": self.uptime(now),
            "goVersion": "",
            "binaryVersion": self.version,
            "emulationVersion": self.emulation_version(),
            "paths": self.paths,
        })
    }

    pub(crate) fn text(&self, now: Timestamp) -> String {
        let uptime = self.uptime(now);
        let started = self.started_at.to_zoned(TimeZone::UTC);
        format!(
            "{}\nStarted: {}\nUp: {} hr {:02} min {:02} sec\nGo version: \nBinary version: {}\n\
             Emulation version: {}\nPaths: {}\n",
            header(PageKind::Statusz),
            started.strftime("%a %b %e %H:%M:%S %Z %Y"),
            uptime / 3600,
            uptime / 60 % 60,
            uptime % 60,
            self.version,
            self.emulation_version(),
            self.paths.join(" "),
        )
    }
}

/// Flags with their values.
pub(crate) type Flags = BTreeMap<&'static str, String>;

/// The structure of `/flagz`.
pub(crate) fn flags_structure(flags: &Flags, version: PageVersion) -> Value {
    json!({
        "kind": "Flagz",
        "apiVersion": format!("{GROUP}/{}", version.name()),
        "metadata": {"name": COMPONENT},
        "flags": flags,
    })
}

pub(crate) fn flags_text(flags: &Flags) -> String {
    let mut text = header(PageKind::Flagz);
    for (name, value) in flags {
        text += &format!("{name}={value}\n");
    }
    text
}

fn header(page: PageKind) -> String {
    let name = page.name();
    format!(
        "\n{COMPONENT} {name}\nWarning: This endpoint is not meant to be machine parseable, has no formatting \
         compatibility guarantees and is for debugging purposes only.\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_says_when_it_started_and_what_else_can_be_asked() {
        let status = ComponentStatus {
            started_at: "2026-01-02T03:04:05.678Z".parse().unwrap(),
            version: "1.36.3",
            paths: vec!["/configz", "/healthz"],
        };
        let now = "2026-01-03T04:06:08Z".parse().unwrap();
        let text = status.text(now);
        for line in [
            "kubelet statusz",
            "Started: Fri Jan  2 03:04:05 UTC 2026",
            "Up: 25 hr 02 min 02 sec",
            "Binary version: 1.36.3",
            "Emulation version: 1.36",
            "Paths: /configz /healthz",
        ] {
            assert!(text.lines().any(|one| one == line), "{line:?} in {text}");
        }
        let expected = json!({
            "kind": "Statusz",
            "apiVersion": "config.k8s.io/v1beta1",
            "metadata": {"name": "kubelet"},
            "startTime": "2026-01-02T03:04:05Z",
            "uptimeSeconds": 90122,
            "goVersion": "",
            "binaryVersion": "1.36.3",
            "emulationVersion": "1.36",
            "paths": ["/configz", "/healthz"],
        });
        assert_eq!(status.structure(PageVersion::V1Beta1, now), expected);
        // A clock that was set back.
        let before = "2025-01-01T00:00:00Z".parse().unwrap();
        assert_eq!(status.uptime(before), 0);
    }

    #[test]
    fn flags_are_sorted() {
        let flags = Flags::from([("root-dir", "/x".to_owned()), ("cert-dir", "/y".to_owned())]);
        assert!(flags_text(&flags).ends_with("\ncert-dir=/y\nroot-dir=/x\n"));
        let structure = flags_structure(&flags, PageVersion::V1Alpha1);
        assert_eq!(structure["apiVersion"], "config.k8s.io/v1alpha1");
        assert_eq!(structure["flags"]["cert-dir"], "/y");
    }
}
