//! What precedes an upgrade: programs are checked and installed beside those that run.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::UpgradeError;
use super::describe::describe;
use super::progress::ProgressSender;
use crate::backend::own::{self, OwnHandle};
use crate::backend::programs::{ActiveProgram, ProgramStore, ProgramStoreError};
use crate::core::order::{SERVICES, SUPERVISOR, upgradable};
use crate::core::upgrade::compatibility::{self, RunningPrograms};
use crate::core::upgrade::journal::{ProgramSwap, UpgradeRecord, version_before};
use crate::core::upgrade::program::{ProgramDescriptor, version_name};
use crate::handover::check::check;
use polylet_wire::supervisor::v1::UpgradeStep;

/// The new program of a service.
#[derive(Debug, Clone)]
pub(crate) struct NewProgram {
    pub(crate) service: &'static str,
    pub(crate) path: PathBuf,
    descriptor: ProgramDescriptor,
    /// Version of the present program.
    present: String,
    /// The present program could not read what it writes.
    one_way: bool,
}

/// The known service of that name.
pub(crate) fn known_service(name: &str) -> Result<&'static str, UpgradeError> {
    let known = upgradable().find(|service| *service == name);
    known.ok_or_else(|| UpgradeError::UnknownService {
        service: name.to_owned(),
    })
}

/// The descriptors of the programs of all services, and of this program.
async fn running(store: &ProgramStore) -> Result<RunningPrograms, UpgradeError> {
    let mut running = RunningPrograms::new();
    for service in &SERVICES {
        let link = store.link(service.name);
        running.insert(service.name.to_owned(), describe(&link, &link).await?);
    }
    running.insert(SUPERVISOR.to_owned(), describe_own()?);
    Ok(running)
}

/// The descriptor of this program.
fn describe_own() -> Result<ProgramDescriptor, UpgradeError> {
    serde_json::from_str(&crate::DESCRIPTOR.to_json()).map_err(UpgradeError::OwnDescriptor)
}

/// Whether another program could continue in the process of this one, which has to be the one that the link
/// names: a service manager starts that when this process has ended.
async fn check_own(
    store: &ProgramStore,
    own: &OwnHandle,
    program: &Path,
) -> Result<(), UpgradeError> {
    let link = store.link(SUPERVISOR);
    // Not found: the store's error names the path.
    store.active(SUPERVISOR)?;
    if !own::runs(&link) {
        return Err(UpgradeError::OtherSupervisor { link });
    }
    Ok(check(&link, program, &own.state().await?).await?)
}

/// Checks new programs against those that run, callees first.
pub(crate) async fn check_upgrade(
    store: &ProgramStore,
    own: &OwnHandle,
    requested: Vec<(&'static str, PathBuf)>,
    one_way: bool,
    progress: &ProgressSender,
) -> Result<Vec<NewProgram>, UpgradeError> {
    let mut programs = Vec::with_capacity(requested.len());
    for known in upgradable() {
        for (service, path) in requested.iter().filter(|(name, _)| *name == known) {
            let descriptor = describe(&store.link(service), path).await?;
            programs.push(NewProgram {
                service,
                path: path.clone(),
                descriptor,
                present: String::new(),
                one_way: false,
            });
        }
    }
    let running = running(store).await?;
    let no_way_back = check_compatible(&mut programs, &running, progress)?;
    if !no_way_back.is_empty() && !one_way {
        return Err(UpgradeError::NoWayBack(no_way_back));
    }
    if let Some(program) = programs.iter().find(|one| one.service == SUPERVISOR) {
        check_own(store, own, &program.path).await?;
    }
    Ok(programs)
}

/// Refuses programs that are not compatible. Returns the files that the present ones could not read
/// afterwards.
fn check_compatible(
    programs: &mut [NewProgram],
    running: &RunningPrograms,
    progress: &ProgressSender,
) -> Result<Vec<compatibility::Incompatibility>, UpgradeError> {
    let named = programs.iter().map(|one| (one.service, &one.descriptor));
    let found = compatibility::check(named, running.clone());
    if !found.is_empty() {
        return Err(UpgradeError::Incompatible(found));
    }
    let mut no_way_back = Vec::new();
    for program in programs {
        if let Some(present) = running.get(program.service) {
            let unreadable = compatibility::no_way_back(&program.descriptor, present);
            program.present.clone_from(&present.version);
            program.one_way = !unreadable.is_empty();
            no_way_back.extend(unreadable);
        }
        let version = &program.descriptor.version;
        let message = format!("version {version} is compatible with the other services");
        progress.step(program.service, UpgradeStep::Checked, &message);
    }
    Ok(no_way_back)
}

/// Installs a checked program and returns its swap; `None` if it runs already. Blocks.
fn install(
    store: &ProgramStore,
    program: &NewProgram,
    taken: &[String],
) -> Result<Option<ProgramSwap>, UpgradeError> {
    let service = program.service;
    let from = match store.active(service)? {
        ActiveProgram::Version(version) => version,
        ActiveProgram::File => {
            let link = store.link(service);
            let name = name_in(store, service, &program.present, &link, taken)?;
            store.adopt(service, &name)?;
            name
        }
    };
    let version = &program.descriptor.version;
    let to = name_in(store, service, version, &program.path, taken)?;
    if !store.file(service, &to).is_file() {
        store.install(service, &to, &program.path)?;
    }
    Ok((from != to).then(|| ProgramSwap {
        service: service.to_owned(),
        from,
        to,
        one_way: program.one_way,
    }))
}

/// The name of a program among the installed versions of its service, and those that had their names before.
fn name_in(
    store: &ProgramStore,
    service: &str,
    version: &str,
    program: &Path,
    taken: &[String],
) -> Result<String, UpgradeError> {
    let mut installed = Vec::new();
    for name in store.versions(service)? {
        let file = store.file(service, &name);
        let same = is_same(&file, program).map_err(|source| UpgradeError::Compare {
            path: program.to_owned(),
            source,
        })?;
        installed.push((name, same));
    }
    installed.extend(taken.iter().map(|name| (name.clone(), false)));
    // The same program under whatever name.
    let same = installed.iter().find(|(_, same)| *same);
    Ok(same.map_or_else(
        || version_name(version, &installed),
        |(name, _)| name.clone(),
    ))
}

/// Whether two files have the same content.
fn is_same(one: &Path, other: &Path) -> std::io::Result<bool> {
    let (mut one, mut other) = (File::open(one)?, File::open(other)?);
    if one.metadata()?.len() != other.metadata()?.len() {
        return Ok(false);
    }
    let (mut left, mut right) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    loop {
        let length = one.read(&mut left)?;
        if length == 0 {
            return Ok(true);
        }
        let (Some(left), Some(right)) = (left.get(..length), right.get_mut(..length)) else {
            return Ok(false);
        };
        other.read_exact(right)?;
        if left != right {
            return Ok(false);
        }
    }
}

/// Checks the programs from before the last upgrades, callers first, and returns their swaps. Without
/// services, those of all that were upgraded.
pub(crate) async fn check_rollback(
    store: &ProgramStore,
    own: &OwnHandle,
    history: &[UpgradeRecord],
    requested: &[&'static str],
    progress: &ProgressSender,
) -> Result<Vec<ProgramSwap>, UpgradeError> {
    let mut swaps = Vec::new();
    let mut programs = Vec::new();
    for service in upgradable().rev() {
        if !requested.is_empty() && !requested.contains(&service) {
            continue;
        }
        let from = match store.active(service) {
            Ok(ActiveProgram::Version(from)) => from,
            // The supervisor may run from elsewhere.
            Ok(ActiveProgram::File) | Err(ProgramStoreError::Missing { .. }) => continue,
            Err(error) => return Err(error.into()),
        };
        let Some(to) = version_before(history, service, &from) else {
            continue;
        };
        let path = store.file(service, &to);
        let descriptor = describe(&store.link(service), &path).await?;
        programs.push(NewProgram {
            service,
            path,
            descriptor,
            present: String::new(),
            one_way: false,
        });
        swaps.push(ProgramSwap {
            service: service.to_owned(),
            from,
            to,
            one_way: false,
        });
    }
    let is_found = |service: &&&'static str| swaps.iter().any(|swap| swap.service == ***service);
    if let Some(missing) = requested.iter().find(|service| !is_found(service)) {
        return Err(UpgradeError::NoVersionBefore {
            service: (*missing).to_owned(),
        });
    }
    let running = running(store).await?;
    // A rollback may have no way forth again.
    check_compatible(&mut programs, &running, progress)?;
    if let Some(program) = programs.iter().find(|one| one.service == SUPERVISOR) {
        check_own(store, own, &program.path).await?;
    }
    for (swap, program) in swaps.iter_mut().zip(&programs) {
        swap.one_way = program.one_way;
    }
    Ok(swaps)
}

/// Installs checked programs, callees first. Blocks.
pub(crate) fn install_all(
    store: &ProgramStore,
    programs: &[NewProgram],
    history: &[UpgradeRecord],
    progress: &ProgressSender,
) -> Result<Vec<ProgramSwap>, UpgradeError> {
    let mut swaps = Vec::new();
    for program in programs {
        let service = program.service;
        let link = store.link(service);
        let swaps_of = history.iter().filter(|record| record.service == service);
        let taken: Vec<String> = swaps_of
            .flat_map(|record| [record.from.clone(), record.to.clone()])
            .collect();
        let Some(swap) = install(store, program, &taken)? else {
            let message = format!("{} runs this program already", link.display());
            progress.step(service, UpgradeStep::Unchanged, &message);
            continue;
        };
        let file = store.file(service, &swap.to);
        let message = format!("{} is installed", file.display());
        progress.step(service, UpgradeStep::Installed, &message);
        swaps.push(swap);
    }
    Ok(swaps)
}
