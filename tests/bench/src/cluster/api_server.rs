//! Requests and bytes that an agent costs the API server: `cargo node-bench -- --api-server`. Requests are those of
//! the audit log, bytes those of the connections, TLS among them.

use std::collections::BTreeMap;
use std::time::Duration;

use polylet_harness::HarnessError;

use super::{Bench, SETTLE, manifest};
use crate::manifests::ManifestKind;

const HOUR: Duration = Duration::from_secs(3600);

/// A moment from which requests and bytes count.
struct ApiMark {
    audited: u64,
    bytes: u64,
}

/// What was asked since a mark.
struct ApiUse {
    requests: usize,
    bytes: u64,
}

impl Bench<'_> {
    /// Measures both agents at rest without pods, then the lives of `count` pods, and between start and deletion both
    /// at rest with them.
    pub(super) async fn api_server(&mut self, count: usize) -> Result<(), HarnessError> {
        // What follows the registration has ended.
        tokio::time::sleep(SETTLE * 10).await;
        self.hour_at_rest(0).await?;
        let pod = manifest(ManifestKind::Volumes)?;
        for (which, of) in ["start", "deletion"].into_iter().enumerate() {
            let mut cells = [String::new(), String::new()];
            for (at, cell) in cells.iter_mut().enumerate() {
                eprintln!("{of} of {count} pods by {}", self.sides[at].program());
                let mark = self.api_mark(at)?;
                match which {
                    0 => self.sides[at].many_up(count, &pod).await?,
                    _ => self.sides[at].many_down(count).await?,
                };
                tokio::time::sleep(SETTLE).await;
                *cell = self.api_use(at, &mark)?.times(1.0 / count.max(1) as f64);
            }
            let what = format!("a pod's {of}, ConfigMap, Secret, token, each of {count} at once");
            self.table.line(what, "", cells);
            if which == 0 {
                self.hour_at_rest(count).await?;
            }
        }
        Ok(())
    }

    async fn hour_at_rest(&mut self, pods: usize) -> Result<(), HarnessError> {
        eprintln!("rest with {pods} pods, {} s", self.window.as_secs());
        let marks = [self.api_mark(0)?, self.api_mark(1)?];
        tokio::time::sleep(self.window).await;
        let windows = HOUR.as_secs_f64() / self.window.as_secs_f64().max(1.0);
        let mut cells = [String::new(), String::new()];
        for (at, (cell, mark)) in cells.iter_mut().zip(&marks).enumerate() {
            *cell = self.api_use(at, mark)?.times(windows);
        }
        let what = format!("an hour at rest with {pods} pods");
        self.table.line(what, "", cells);
        Ok(())
    }

    fn api_mark(&self, which: usize) -> Result<ApiMark, HarnessError> {
        let (_, audited) = self.cluster.requests(0)?;
        let bytes = self.sides[which].api_bytes();
        Ok(ApiMark { audited, bytes })
    }

    fn api_use(&self, which: usize, since: &ApiMark) -> Result<ApiUse, HarnessError> {
        let side = &self.sides[which];
        let requests = side.requests(since.audited)?;
        let mut by_kind: BTreeMap<String, usize> = BTreeMap::new();
        for request in &requests {
            let kind = format!("{} {}", request.verb, request.resource);
            *by_kind.entry(kind).or_default() += 1;
        }
        eprintln!("  {}: {by_kind:?}", side.program());
        Ok(ApiUse {
            requests: requests.len(),
            bytes: side.api_bytes().saturating_sub(since.bytes),
        })
    }
}

impl ApiUse {
    fn times(&self, factor: f64) -> String {
        let requests = self.requests as f64 * factor;
        let kib = self.bytes as f64 * factor / 1024.0;
        format!("{requests:.1} requests, {kib:.1} KiB")
    }
}
