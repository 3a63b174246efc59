//! `gaunt completions` and `gaunt man`: print what packages install beside the programs.

use std::{fs, path::Path, process::ExitCode};

use anyhow::Context as _;
use clap::Command;
use clap_complete::Shell;

use super::snapshot_command::print_page;

/// Prints the completions of a shell.
pub fn print_completions(mut command: Command, shell: Shell) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    let name = command.get_name().to_owned();
    clap_complete::generate(shell, &mut command, name, &mut script);
    print_page(&String::from_utf8(script)?)?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the manual page, or writes it and one page for each command to a folder.
pub fn print_manual(command: Command, folder: Option<&Path>) -> anyhow::Result<ExitCode> {
    if let Some(folder) = folder {
        let write = || {
            fs::create_dir_all(folder)?;
            clap_mangen::generate_to(command, folder)
        };
        write().with_context(|| {
            format!("cannot write manual pages to {}; check --to", folder.display())
        })?;
    } else {
        let mut page = Vec::new();
        clap_mangen::Man::new(command).render(&mut page)?;
        print_page(&String::from_utf8(page)?)?;
    }
    Ok(ExitCode::SUCCESS)
}
