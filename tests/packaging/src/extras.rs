//! What the Debian package has beside programs and units, out of the command line: manual pages, shell
//! completions, and the links of programs.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

use clap_complete::Shell;

use crate::{DESCRIPTORS, SUPERVISOR};

/// Writes all of it below a directory, which is emptied first.
///
/// # Errors
/// When a file cannot be written.
pub fn write(directory: &Path) -> io::Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let make = |name: &str| {
        let path = directory.join(name);
        fs::create_dir_all(&path).map(|()| path)
    };
    let mut command = polylet_supervisor::command();
    command.build();
    clap_mangen::generate_to(command.clone(), make("man")?)?;
    let completions = make("completions")?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut command, "polylet", &completions)?;
    }
    // Shells look for the command's name.
    let bash = completions.join("polylet.bash");
    if !bash.exists() {
        return Err(io::Error::other("no completions for bash"));
    }
    let links = make("links")?;
    for descriptor in DESCRIPTORS {
        symlink("polylet-multicall", links.join(program(descriptor.service)))?;
    }
    symlink("../lib/polylet/polylet", make("bin")?.join("polylet"))
}

/// The name of a service's program.
pub fn program(service: &str) -> String {
    match service {
        SUPERVISOR => "polylet".to_owned(),
        _ => format!("polylet-{service}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_and_links_are_written() {
        let dir = tempfile::tempdir().unwrap();
        let package = dir.path().join("package");
        write(&package).unwrap();
        write(&package).unwrap();
        let page = fs::read_to_string(package.join("man/polylet.1")).unwrap();
        assert!(page.contains("takeover"), "{page}");
        assert!(package.join("man/polylet-takeover.1").exists());
        assert!(package.join("completions/_polylet").exists());
        assert!(package.join("completions/polylet.fish").exists());
        let target = fs::read_link(package.join("links/polylet-pleg")).unwrap();
        assert_eq!(target, Path::new("polylet-multicall"));
        assert_eq!(
            fs::read_dir(package.join("links")).unwrap().count(),
            DESCRIPTORS.len()
        );
    }
}
