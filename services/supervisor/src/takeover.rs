//! `polylet takeover`: Polylet instead of the kubelet, and back. It says first what it will do.

use std::io::{BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use polylet_kit::{Exit, config, report, state_file};

use crate::core::takeover::{
    self, KUBELET, NodeAgent, NodeAgents, POLYLET_PROCESS, POLYLET_UNITS, TakeoverStep, UnitFacts,
};
use crate::flags::{self, FlagError, ParsedArgs};
use crate::systemctl::{Systemctl, SystemctlError};

/// The drop-in that makes the kubelet's unit run Polylet.
mod drop_in;

use drop_in::DropInError;

/// The first line of the configuration that the package installs. It is nobody's, so that a takeover
/// replaces it by that of the kubelet.
const PACKAGED: &str = "# Default configuration of the package polylet.";

/// What kubeadm writes before it starts the kubelet.
const KUBEADM_CONFIG: &str = "/var/lib/kubelet/config.yaml";

/// Arguments of `polylet takeover`.
#[derive(Args)]
pub(crate) struct TakeoverArgs {
    /// Go back to the kubelet
    #[arg(long)]
    back: bool,
    /// Run all services as children of one process (polylet.service) instead of as units (polylet.target)
    #[arg(long, conflicts_with = "back")]
    single: bool,
    /// Run Polylet as kubelet.service, where kubeadm expects the kubelet, with the arguments it writes
    #[arg(long, conflicts_with_all = ["back", "single"])]
    kubeadm: bool,
    /// Say what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

/// Why the node agent was not replaced.
#[derive(Debug, thiserror::Error)]
enum TakeoverError {
    #[error("starting the runtime")]
    Runtime(#[source] std::io::Error),
    #[error(transparent)]
    Systemctl(#[from] SystemctlError),
    #[error("{unit} is not installed")]
    NotInstalled { unit: &'static str },
    #[error("reading the command line of the kubelet, process {pid}")]
    CommandLine {
        pid: u32,
        #[source]
        source: std::io::Error,
    },
    #[error("the configuration of the kubelet cannot be taken over")]
    Flags(#[source] FlagError),
    #[error("{path} is not usable, so that nothing was changed")]
    Config {
        path: PathBuf,
        #[source]
        source: config::ConfigError,
    },
    #[error("reading {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("writing {path}")]
    Write {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error(
        "{KUBELET} does not take its arguments from the variables of kubeadm's drop-in, KUBELET_KUBECONFIG_ARGS \
         and KUBELET_CONFIG_ARGS: without --kubeadm, its configuration is taken over into a file of Polylet"
    )]
    NotKubeadm,
    #[error("not confirmed; pass --yes where there is no terminal")]
    NotConfirmed,
    #[error("failed to {step}; {}", state(done))]
    Step {
        step: TakeoverStep,
        done: Vec<TakeoverStep>,
        #[source]
        source: StepError,
    },
}

/// Why a step failed.
#[derive(Debug, thiserror::Error)]
enum StepError {
    #[error(transparent)]
    Systemctl(#[from] SystemctlError),
    #[error(transparent)]
    DropIn(#[from] DropInError),
}

fn state(done: &[TakeoverStep]) -> String {
    if done.is_empty() {
        return "nothing was changed".to_owned();
    }
    let done: Vec<String> = done.iter().map(ToString::to_string).collect();
    format!("done so far: {}", done.join("; "))
}

/// Runs the command with the configuration file of Polylet.
pub(crate) fn main(args: &TakeoverArgs, file: &Path) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(run(args, file)),
        Err(error) => Err(TakeoverError::Runtime(error)),
    };
    let Err(error) = result else {
        return Exit::Ok.into();
    };
    eprintln!("polylet takeover: {}", report(&error));
    if let TakeoverError::Step { done, .. } = &error
        && !done.is_empty()
    {
        let way = if args.back { "" } else { " --back" };
        eprintln!("polylet takeover: to undo it: polylet takeover{way}");
    }
    match error {
        TakeoverError::NotConfirmed => Exit::Usage,
        TakeoverError::Config { .. } | TakeoverError::Flags(_) => Exit::Config,
        _ => Exit::Failed,
    }
    .into()
}

async fn run(args: &TakeoverArgs, file: &Path) -> Result<(), TakeoverError> {
    let agent = match args {
        TakeoverArgs { back: true, .. } => NodeAgent::Kubelet,
        TakeoverArgs { single: true, .. } => NodeAgent::Process,
        TakeoverArgs { kubeadm: true, .. } => NodeAgent::Kubeadm,
        _ => NodeAgent::Units,
    };
    let agents = NodeAgents {
        kubelet: Systemctl.facts(KUBELET).await?,
        units: Systemctl.facts(POLYLET_UNITS).await?,
        process: Systemctl.facts(POLYLET_PROCESS).await?,
        has_drop_in: drop_in::exists(),
        has_kubeadm_config: Path::new(KUBEADM_CONFIG).exists(),
    };
    let text = match agent {
        NodeAgent::Units | NodeAgent::Process => configuration(&agents.kubelet, file)?,
        NodeAgent::Kubelet | NodeAgent::Kubeadm => None,
    };
    let steps = takeover::plan(&agents, agent, text.is_some())
        .map_err(|unit| TakeoverError::NotInstalled { unit })?;
    if agent == NodeAgent::Kubeadm
        && !takeover::has_kubeadm_arguments(&Systemctl.exec_start(KUBELET).await?)
    {
        return Err(TakeoverError::NotKubeadm);
    }
    if steps.is_empty() {
        println!("Nothing to do: {agent} is enabled and running, and no other node agent is.");
        return Ok(());
    }
    println!("This will");
    for step in &steps {
        match step {
            TakeoverStep::WriteConfiguration => println!("  - {step}, to {}", file.display()),
            _ => println!("  - {step}"),
        }
    }
    if args.dry_run {
        return Ok(());
    }
    if !args.yes && !is_confirmed() {
        return Err(TakeoverError::NotConfirmed);
    }
    apply(&steps, text.as_deref(), file).await?;
    let state = match agent {
        NodeAgent::Kubeadm if !agents.has_kubeadm_config => "starts with kubeadm init or join",
        _ => "is running",
    };
    let back = match agent {
        NodeAgent::Kubelet => "",
        _ => " --back",
    };
    println!("Done: {agent} {state}. `polylet takeover{back}` goes back.");
    Ok(())
}

/// The configuration to write, if that of a running kubelet is to be taken over; otherwise checks the
/// present one. Before anything is changed.
fn configuration(kubelet: &UnitFacts, file: &Path) -> Result<Option<String>, TakeoverError> {
    let present = match std::fs::read_to_string(file) {
        Ok(text) => Some(text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(source) => {
            let path = file.to_owned();
            return Err(TakeoverError::Read { path, source });
        }
    };
    let is_own = present
        .as_deref()
        .is_some_and(|text| !text.starts_with(PACKAGED));
    if let (Some(pid), false) = (kubelet.pid, is_own)
        && let Some(text) = configuration_of(pid)?
    {
        config::from_text(file, &text).map_err(|source| TakeoverError::Config {
            path: file.to_owned(),
            source,
        })?;
        return Ok(Some(text));
    }
    config::load(file).map_err(|source| TakeoverError::Config {
        path: file.to_owned(),
        source,
    })?;
    Ok(None)
}

/// The configuration of a running kubelet; `None` if the process is of another program.
fn configuration_of(pid: u32) -> Result<Option<String>, TakeoverError> {
    let line = std::fs::read(format!("/proc/{pid}/cmdline"))
        .map_err(|source| TakeoverError::CommandLine { pid, source })?;
    let Some(arguments) = takeover::kubelet_arguments(&line) else {
        return Ok(None);
    };
    let ParsedArgs::Run(parsed) = flags::parse(arguments).map_err(TakeoverError::Flags)? else {
        return Ok(None);
    };
    flags::text(parsed).map(Some).map_err(TakeoverError::Flags)
}

fn is_confirmed() -> bool {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        return false;
    }
    print!("Proceed? [y/N] ");
    let _ = std::io::stdout().flush();
    let mut answer = String::new();
    let read = stdin.lock().read_line(&mut answer);
    read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes")
}

async fn apply(
    steps: &[TakeoverStep],
    text: Option<&str>,
    file: &Path,
) -> Result<(), TakeoverError> {
    let mut done = Vec::new();
    for step in steps {
        println!("{step}");
        let changed = match step {
            TakeoverStep::WriteConfiguration => {
                write(text.unwrap_or_default(), file)?;
                Ok(())
            }
            step => change(*step).await,
        };
        changed.map_err(|source| TakeoverError::Step {
            step: *step,
            done: done.clone(),
            source,
        })?;
        done.push(*step);
    }
    Ok(())
}

async fn change(step: TakeoverStep) -> Result<(), StepError> {
    match step {
        TakeoverStep::WriteConfiguration => {}
        TakeoverStep::Stop(unit) => Systemctl.change("stop", &[unit]).await?,
        TakeoverStep::Disable(unit) => Systemctl.change("disable", &[unit]).await?,
        TakeoverStep::Enable(unit) => Systemctl.change("enable", &[unit]).await?,
        TakeoverStep::Start(unit) => Systemctl.change("start", &[unit]).await?,
        TakeoverStep::Restart(unit) => Systemctl.change("restart", &[unit]).await?,
        TakeoverStep::AddDropIn => {
            drop_in::add()?;
            Systemctl.reload().await?;
        }
        TakeoverStep::RemoveDropIn => {
            drop_in::remove()?;
            Systemctl.reload().await?;
        }
    }
    Ok(())
}

/// Writes the configuration; readable by the services, which run as users of their own.
fn write(text: &str, file: &Path) -> Result<(), TakeoverError> {
    use std::os::unix::fs::PermissionsExt;
    let written = || {
        if let Some(directory) = file.parent() {
            std::fs::create_dir_all(directory)?;
        }
        state_file::write(file, text.as_bytes())?;
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o644))
    };
    written().map_err(|source| TakeoverError::Write {
        path: file.to_owned(),
        source,
    })
}
