use std::time::Duration;

use polylet_harness::{HarnessError, Node};

use crate::manifests::{PROBED, probed};
use crate::pods::Pods;
use crate::rest;
use crate::table::Table;

/// So long until the phases of all probes are spread and the start is over.
const SETTLING: Duration = Duration::from_secs(5);

/// What probes cost while all is well: `count` a second over the network, half of them HTTP and half
/// TCP; then a tenth as many commands in containers, which are the runtime's work above all.
pub(crate) async fn measure(
    node: &Node,
    count: usize,
    window: Duration,
    pods: &mut Pods<'_>,
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
            &rest::measure(node, "polylet", window).await,
        );
        pods.remove_many(&names).await?;
    }
    Ok(())
}
