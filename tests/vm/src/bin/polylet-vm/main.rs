//! A look into a virtual machine of the tests: boots one and runs each line of the standard input in
//! it. `:cut` cuts its power and boots it again, `:reboot` reboots it in order; it is removed at the
//! end of the input. With `--kubelet`, it is the node of a real cluster, with a kubelet that runs.

use std::process::ExitCode;
use std::time::Duration;

use polylet_harness::error::report;
use polylet_harness::{Cluster, guard};
use polylet_vm::node;
use polylet_vm::{Hardware, KubeletNode, ProgramSet, VirtualMachine, VmError};

/// Time limit of a line.
const LIMIT: Duration = Duration::from_secs(3600);

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    guard::on_signals();
    match session().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("polylet-vm: {}", report(&error));
            ExitCode::FAILURE
        }
    }
}

async fn session() -> Result<(), VmError> {
    let own = std::env::current_exe();
    let own = own.map_err(|source| VmError::Agent { source })?;
    let mut programs = ProgramSet::new(&own.with_file_name("polylet-vm-agent"));
    let say = |line: &str| eprintln!("{line}");
    let cluster = match std::env::args().nth(1).as_deref() {
        Some("--kubelet") => Some(Cluster::start(&node::cluster_options(), &say).await?),
        _ => None,
    };
    if let Some(cluster) = &cluster {
        eprintln!("kubectl --kubeconfig {}", cluster.admin().display());
        programs.others = vec![cluster.programs().path("kubelet")?.to_owned()];
    }
    let mut vm = VirtualMachine::create(&programs, Hardware::default(), &say).await?;
    eprintln!("files in {}", vm.scratch().display());
    eprintln!("booted in {:.1?}", vm.boot().await?);
    if let Some(cluster) = &cluster {
        KubeletNode::default().install(vm.guest()?, cluster).await?;
    }
    let mut random = fastrand::Rng::new();
    // Nothing else happens while a line is awaited.
    for line in std::io::stdin().lines().map_while(Result::ok) {
        match line.as_str() {
            ":cut" => {
                eprintln!("{:?}", vm.cut_power(&mut random)?);
                eprintln!("booted in {:.1?}", vm.boot().await?);
            }
            ":reboot" => eprintln!("rebooted in {:.1?}", vm.reboot().await?),
            script => {
                let output = vm.guest()?.run(&["sh", "-c", script], "", LIMIT).await?;
                println!("{}", output.text());
                if !output.succeeded() {
                    eprintln!("exit code {:?}", output.code);
                }
            }
        }
    }
    vm.remove()?;
    match cluster {
        Some(cluster) => Ok(cluster.remove()?),
        None => Ok(()),
    }
}
