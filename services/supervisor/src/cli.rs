//! The command line of `polylet`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use polylet_kit::{Config, DEFAULT_CONFIG, Exit, config, report};

use crate::args::trace::TraceArgs;
use crate::args::{LogArgs, OutputFormat, ProfileArgs, RollbackArgs, UpgradeArgs};
use crate::backend::BackendKind;
use crate::flags::{self, EffectiveConfig, FlagError, ParsedArgs};
use crate::handover::check;
use crate::takeover::{self, TakeoverArgs};
use crate::{client, run, show};

/// A Kubernetes node agent in eleven processes.
#[derive(Parser)]
#[command(name = "polylet", version, disable_help_subcommand = true)]
struct Cli {
    #[command(flatten)]
    global: GlobalArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Args)]
struct GlobalArgs {
    /// Configuration file: KubeletConfiguration, and PolyletConfiguration as a second document
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Directory of the services' sockets, overriding the configuration
    #[arg(long, global = true, value_name = "DIR")]
    run_directory: Option<PathBuf>,
    /// Output format
    #[arg(short, long, global = true, value_enum, default_value_t = OutputFormat::Text)]
    output: OutputFormat,
}

#[derive(Subcommand)]
enum Command {
    /// Start the node's services and supervise them; accepts the kubelet's flags
    Run,
    /// Show the status of the services
    Status,
    /// List the pods on this node
    Pods,
    /// Check whether a service serves; for health checks of service managers
    Health {
        /// The service, such as pleg, or supervisor
        service: String,
    },
    /// Print the logs of a container
    Logs(LogArgs),
    /// Show the trace of a pod's start, or where the time of many went
    Trace(Box<TraceArgs>),
    /// Take a profile of a service, for `go tool pprof`
    Profile(ProfileArgs),
    /// Run Polylet instead of the kubelet, or go back; says first what it will do
    Takeover(TakeoverArgs),
    /// Replace the program of a service, of the supervisor, or of all, while pods keep running
    Upgrade(UpgradeArgs),
    /// Bring back the program from before the last upgrade
    Rollback(RollbackArgs),
    /// List upgrades and rollbacks
    History,
    /// Validate a configuration file
    CheckConfig {
        /// The configuration file
        file: PathBuf,
    },
}

/// The command line, for manual pages and completions.
pub fn command() -> clap::Command {
    <Cli as clap::CommandFactory>::command()
}

/// The `main` function of the command.
pub fn main() -> ExitCode {
    let args = std::env::args_os().map(|arg| arg.to_string_lossy().into_owned());
    let mut args: Vec<String> = args.collect();
    let mut mode = RunMode::Run;
    match args.get(1).map(String::as_str) {
        Some("--descriptor") if args.len() == 2 => {
            println!("{}", crate::DESCRIPTOR.to_json());
            return Exit::Ok.into();
        }
        Some(check::OPTION) => {
            args.remove(1);
            mode = RunMode::Check;
        }
        _ => {}
    }
    if let Some(args) = run_args(args.clone()) {
        return run_with(args, mode).into();
    }
    let args = std::env::args_os().enumerate();
    let args = args.filter(|(at, arg)| *at != 1 || arg != check::OPTION);
    let cli = match Cli::try_parse_from(args.map(|(_, arg)| arg)) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are errors to the parser.
            let _ = error.print();
            return if error.use_stderr() {
                Exit::Usage
            } else {
                Exit::Ok
            }
            .into();
        }
    };
    let output = cli.global.output;
    if let Command::CheckConfig { file } = &cli.command {
        return show::config::check(file, output).into();
    }
    if let Command::Takeover(args) = &cli.command {
        let file = cli.global.config.as_deref();
        return takeover::main(args, file.unwrap_or(Path::new(DEFAULT_CONFIG)));
    }
    let running = matches!(cli.command, Command::Run);
    let config = match configuration(&cli.global, running) {
        Ok(config) => config,
        Err(error) => {
            eprintln!("polylet: {}", report(&error));
            return Exit::Config.into();
        }
    };
    match cli.command {
        Command::Run => {
            let effective = EffectiveConfig { config, text: None };
            mode.run(effective, BackendKind::Child).into()
        }
        Command::Status => client::run(show::status::show(&config, output)),
        Command::Health { service } => client::run(show::health::show(&config, &service, output)),
        Command::Pods => client::run(show::pods::show(&config, output)),
        Command::Logs(args) => client::run(show::logs::show(&config, args)),
        Command::Trace(args) => client::run(show::trace::run(&config, *args, output)),
        Command::Profile(args) => client::run(show::profile::show(&config, args, output)),
        Command::Upgrade(args) => client::run(show::upgrade::upgrade(&config, args, output)),
        Command::Rollback(args) => client::run(show::upgrade::roll_back(&config, args, output)),
        Command::History => client::run(show::history::show(&config, output)),
        // Handled above, as they need no configuration of the node.
        Command::CheckConfig { .. } | Command::Takeover(_) => Exit::Ok.into(),
    }
}

/// Whether to run, or only to check whether this program could continue in the process of another one.
#[derive(Clone, Copy)]
enum RunMode {
    Run,
    Check,
}

impl RunMode {
    fn run(self, effective: EffectiveConfig, backend: BackendKind) -> Exit {
        match self {
            RunMode::Run => run::main(effective, backend),
            RunMode::Check => run::answer_check(&effective.config),
        }
    }

    /// There is no valid configuration to run with.
    fn give_back(self, error: &FlagError) {
        if matches!(self, RunMode::Run) {
            run::give_back(report(error));
        }
    }
}

/// The arguments of `polylet run`, or of the program under the name `kubelet`.
fn run_args(mut args: Vec<String>) -> Option<Vec<String>> {
    let program = args.first().map(Path::new).and_then(Path::file_name);
    let first = if program.is_some_and(|name| name == "kubelet") {
        1
    } else if args.get(1).is_some_and(|arg| arg == "run") {
        2
    } else {
        return None;
    };
    Some(args.split_off(first))
}

fn run_with(args: Vec<String>, mode: RunMode) -> Exit {
    let (parsed, backend) = match flags::parse(args) {
        Ok(ParsedArgs::Run(parsed)) => {
            let backend = parsed.backend;
            (parsed, backend)
        }
        Ok(ParsedArgs::Help) => {
            print!("{}", flags::help());
            return Exit::Ok;
        }
        Ok(ParsedArgs::Version) => {
            let version = polylet_model::node::kubelet_version(env!("CARGO_PKG_VERSION"));
            println!("Kubernetes {version}");
            return Exit::Ok;
        }
        Err(error) => {
            eprintln!("polylet run: {}", report(&error));
            return Exit::Usage;
        }
    };
    match flags::configuration(parsed) {
        Ok(effective) if backend != BackendKind::Child && effective.text.is_some() => {
            eprintln!(
                "polylet run: --backend systemd or external accepts no flag but --config: the services are no \
                 children of this process and read the configuration file themselves"
            );
            Exit::Usage
        }
        Ok(effective) => mode.run(effective, backend),
        Err(error) => {
            eprintln!("polylet run: {}", report(&error));
            mode.give_back(&error);
            match error {
                FlagError::Config(_) | FlagError::Read { .. } | FlagError::Document { .. } => {
                    Exit::Config
                }
                _ => Exit::Usage,
            }
        }
    }
}

/// The named configuration, or the default one. Only `run` requires the file.
fn configuration(args: &GlobalArgs, running: bool) -> Result<Config, config::ConfigError> {
    let default = Path::new(DEFAULT_CONFIG);
    let mut config = match &args.config {
        Some(file) => config::load(file)?,
        None if running || default.exists() => config::load(default)?,
        None => config::from_text(default, "")?,
    };
    if let Some(directory) = &args.run_directory {
        config.polylet.run_directory.clone_from(directory);
    }
    Ok(config)
}
