use std::time::{Duration, Instant};

use polylet_harness::HarnessError;

use super::{Bench, SETTLE, manifest};
use crate::idle;
use crate::manifests::ManifestKind;
use crate::measure::{Samples, ms};

/// Paths of the node API that monitoring systems scrape.
const PATHS: [&str; 4] = [
    "/stats/summary",
    "/metrics",
    "/metrics/resource",
    "/metrics/cadvisor",
];

/// The time between two scrapes.
const INTERVAL: Duration = Duration::from_secs(1);

impl Bench<'_> {
    /// Measures the processor time that a scrape costs all processes of an agent, with `count` pods on
    /// each node: the use of processors during a scrape a second, less that at rest just before.
    pub(super) async fn scrapes(&mut self, count: usize) -> Result<(), HarnessError> {
        let pod = manifest(ManifestKind::Bare)?;
        for side in &mut self.sides {
            side.many_up(count, &pod).await?;
        }
        tokio::time::sleep(SETTLE).await;
        for path in PATHS {
            let mut cells = [String::new(), String::new()];
            for (which, cell) in cells.iter_mut().enumerate() {
                *cell = self.scraped(which, path).await?;
            }
            let what = format!("a scrape of `{path}` with {count} pods");
            self.table.line(what, "", cells);
        }
        for side in &mut self.sides {
            side.many_down(count).await?;
        }
        Ok(())
    }

    async fn scraped(&self, which: usize, path: &str) -> Result<String, HarnessError> {
        let side = &self.sides[which];
        let (node, agent) = (&side.node, side.program());
        eprintln!("{path} of {agent}");
        let url = format!("/api/v1/nodes/{}/proxy{path}", node.name());
        // The first one may find empty caches.
        let first = self.cluster.client().text(&url).await?;
        let rest = idle::measure(node, agent, self.window).await;
        let scrapes = async {
            let mut took = Samples::default();
            let mut pause = tokio::time::interval(INTERVAL);
            let began = Instant::now();
            while began.elapsed() + INTERVAL < self.window {
                pause.tick().await;
                let began = Instant::now();
                self.cluster.client().text(&url).await?;
                took.add(began.elapsed());
            }
            Ok::<_, HarnessError>(took)
        };
        let (busy, took) = tokio::join!(idle::measure(node, agent, self.window), scrapes);
        let took = took?;
        let seconds = (busy.cores - rest.cores) * self.window.as_secs_f64();
        let each = seconds * 1e3 / took.count().max(1) as f64;
        Ok(format!(
            "{each:.1} ms of CPU, {} ms p50, {} kB",
            ms(took.percentile(50)),
            first.len() / 1000
        ))
    }
}
