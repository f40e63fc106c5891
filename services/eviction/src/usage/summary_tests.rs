use std::fs;

use serde_json::json;

use super::*;
use crate::core::summary::{CpuStats, render};
use crate::sample::cgroup::tests::directory;
use crate::sample::filesystem;

#[test]
fn rates_are_about_the_times_of_the_counters_whatever_was_measured_before() {
    const CORE: u64 = 1_000_000_000;
    let at = |second| Timestamp::from_second(second).unwrap();
    let cgroups = directory(&[("pod/memory.current", "1")]);
    let filesystem = filesystem::measure(cgroups.path()).unwrap();
    let rates = CpuRates::default();
    // A pod that uses one core.
    let cpu = |begun, read: i64| -> CpuStats {
        let stat = format!("usage_usec {}\n", read * 1_000_000);
        fs::write(cgroups.path().join("pod/cpu.stat"), stat).unwrap();
        let spec = PodUsageSpec {
            cgroups: vec!["pod".to_owned()],
            ..PodUsageSpec::default()
        };
        let job = SummaryJob {
            at: at(begun),
            node_name: String::new(),
            mounts: CgroupMounts::V2(cgroups.path().to_owned()),
            paths: NodePaths {
                root: PathBuf::new(),
                pod_logs: PathBuf::new(),
                pods_cgroup: Vec::new(),
                system_cgroups: Vec::new(),
                qos_cgroups: Vec::new(),
            },
            filesystems: NodeFilesystems {
                node: Some(filesystem),
                image: None,
            },
            layers: WritableLayers::new(),
            rates: rates.clone(),
            pods: vec![SummaryPod {
                uid: "u".to_owned(),
                spec: Some(Arc::new(spec)),
                pod: RuntimePod::default(),
                volumes: None,
            }],
            images: None,
            detail: Detail::Basic,
            with_files: false,
            disk: DiskUsages::new(),
            mounted: BTreeMap::new(),
            volumes: HashMap::new(),
        };
        let summary = job.run(at(read));
        let json = render(&summary, false);
        let time = |second| json!(at(second));
        assert_eq!(json["node"]["fs"]["time"], time(begun));
        for kind in ["cpu", "memory", "swap", "io"] {
            assert_eq!(json["node"][kind]["time"], time(read), "{kind}");
            assert_eq!(json["pods"][0][kind]["time"], time(read), "{kind}");
        }
        summary.pods[0].total.cpu.unwrap()
    };
    assert_eq!(cpu(0, 0).nanocores, None);
    // A summary, which walks files for eight seconds, between reports without files.
    assert_eq!(cpu(2, 10).nanocores, Some(CORE));
    assert_eq!(cpu(20, 20).nanocores, Some(CORE));
}
