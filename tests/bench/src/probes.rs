use std::time::Duration;

use polylet_harness::{HarnessError, Node};

use crate::idle;
use crate::manifests::{PROBED, probed};
use crate::pods::PodDriver;
use crate::table::Table;

/// Time until the start is over and the probes are spread over their period.
const SETTLING: Duration = Duration::from_secs(5);

/// Measures the cost of successful probes: `count` network probes a second, half HTTP and half TCP;
/// then a tenth as many exec probes, whose cost is mostly the runtime's.
pub(crate) async fn measure(
    node: &Node,
    count: usize,
    window: Duration,
    pods: &mut PodDriver<'_>,
    table: &mut Table,
) -> Result<(), HarnessError> {
    for (exec, kind, count) in [(false, "HTTP and TCP", count), (true, "exec", count / 10)] {
        let of_pod = if exec { PROBED } else { 2 * PROBED };
        let so_many = count.div_ceil(of_pod).max(1);
        eprintln!("{} {kind} probes a second", so_many * of_pod);
        let names = pods.put_many(so_many, |name| probed(name, exec))?;
        pods.all_ready(&names).await?;
        tokio::time::sleep(SETTLING).await;
        table.probes(
            so_many * of_pod,
            kind,
            &idle::measure(node, "polylet", window).await,
        );
        pods.remove_many(&names).await?;
    }
    Ok(())
}
