use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};
use polylet_kit::{Config, DEFAULT_CONFIG, Exit, config, report};

use crate::flags::{self, Asked, Effective, FlagError};
use crate::{run, show};

/// A Kubernetes node agent in many small processes.
#[derive(Parser)]
#[command(name = "polylet", version, disable_help_subcommand = true)]
struct Cli {
    #[command(flatten)]
    place: Place,
    #[command(subcommand)]
    command: Command,
}

#[derive(Args)]
struct Place {
    /// Configuration: KubeletConfiguration, and PolyletConfiguration as a second document
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where the node's sockets are, when the configuration is not at hand
    #[arg(long, global = true, value_name = "DIR")]
    run_directory: Option<PathBuf>,
    /// For people, or for programs
    #[arg(short, long, global = true, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// How answers are written.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// Tables and lines.
    Text,
    /// One JSON document.
    Json,
}

#[derive(Subcommand)]
enum Command {
    /// Start the node's services and keep them running; takes the kubelet's flags
    Run,
    /// Show the services
    Status,
    /// Show the pods
    Pods,
    /// Print a container's log
    Logs(LogArgs),
    /// Show where the time of a pod's start went
    Trace {
        /// Name, namespace/name or uid of the pod, or a trace id
        pod: String,
    },
    /// Read a configuration strictly and tell what is wrong with it
    CheckConfig {
        /// The file
        file: PathBuf,
    },
}

/// Which log, and how much of it.
#[derive(Args)]
pub(crate) struct LogArgs {
    /// Name, namespace/name or uid of the pod
    pub(crate) pod: String,
    /// The container, where the pod has several
    #[arg(short, long)]
    pub(crate) container: Option<String>,
    /// Go on until the container ends
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// The container before the present one
    #[arg(short, long)]
    pub(crate) previous: bool,
    /// Only so many lines from the end
    #[arg(long, value_name = "LINES")]
    pub(crate) tail: Option<u64>,
    /// Only lines younger than this: 5s, 2m, 3h
    #[arg(long, value_name = "DURATION", value_parser = config::parse_duration)]
    pub(crate) since: Option<std::time::Duration>,
    /// Each line after the time it was written at
    #[arg(long)]
    pub(crate) timestamps: bool,
}

/// The command's `main`.
pub fn main() -> ExitCode {
    let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    if let Some(words) = words_of_run(words.collect()) {
        return run_with(words).into();
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are errors to the parser and answers to people.
            let _ = error.print();
            return if error.use_stderr() {
                Exit::Usage
            } else {
                Exit::Ok
            }
            .into();
        }
    };
    let output = cli.place.output;
    if let Command::CheckConfig { file } = &cli.command {
        return show::config::check(file, output).into();
    }
    let running = matches!(cli.command, Command::Run);
    let config = match configuration(&cli.place, running) {
        Ok(config) => config,
        Err(error) => {
            eprintln!("polylet: {}", report(&error));
            return Exit::Config.into();
        }
    };
    match cli.command {
        Command::Run => run::main(Effective { config, text: None }).into(),
        Command::Status => client::answer(show::status::show(&config, output)),
        Command::Pods => client::answer(show::pods::show(&config, output)),
        Command::Logs(args) => client::answer(show::logs::show(&config, args)),
        Command::Trace { pod } => client::answer(show::trace::show(&config, &pod, output)),
        // Answered above, before a configuration was needed.
        Command::CheckConfig { .. } => Exit::Ok.into(),
    }
}

use crate::client;

/// The words of a command line that runs the node: after `run`, or after the name `kubelet`.
fn words_of_run(mut words: Vec<String>) -> Option<Vec<String>> {
    let program = words.first().map(Path::new).and_then(Path::file_name);
    let begin = if program.is_some_and(|name| name == "kubelet") {
        1
    } else if words.get(1).is_some_and(|word| word == "run") {
        2
    } else {
        return None;
    };
    Some(words.split_off(begin))
}

fn run_with(words: Vec<String>) -> Exit {
    let parsed = match flags::parse(words) {
        Ok(Asked::Run(parsed)) => parsed,
        Ok(Asked::Help) => {
            print!("{}", flags::help());
            return Exit::Ok;
        }
        Ok(Asked::Version) => {
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
        Ok(effective) => run::main(effective),
        Err(error) => {
            eprintln!("polylet run: {}", report(&error));
            match error {
                FlagError::Config(_) | FlagError::Read { .. } | FlagError::Document { .. } => {
                    Exit::Config
                }
                _ => Exit::Usage,
            }
        }
    }
}

/// The configuration named, or the standard one. Who only asks may go without a file.
fn configuration(place: &Place, running: bool) -> Result<Config, config::ConfigError> {
    let standard = Path::new(DEFAULT_CONFIG);
    let mut config = match &place.config {
        Some(file) => config::load(file)?,
        None if running || standard.exists() => config::load(standard)?,
        None => config::from_text(standard, "")?,
    };
    if let Some(directory) = &place.run_directory {
        config.polylet.run_directory.clone_from(directory);
    }
    Ok(config)
}
