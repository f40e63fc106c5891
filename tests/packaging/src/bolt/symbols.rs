//! Symbols with long names: BOLT's instrumented programs abort at a line of a profile, with two names, of
//! more than 10,240 bytes, and names of nested futures have thousands each.

use object::elf::{FileHeader64, SHT_SYMTAB};
use object::read::elf::{FileHeader, SectionHeader, Sym};
use object::{Endianness, SymbolIndex};

/// The length of a cut name, and the longest that is not cut.
pub(super) const MAX_NAME: usize = 2_000;
/// What a cut name keeps of its end, where the hash is that tells instances of a function apart.
const KEPT_END: usize = 20;

/// A file whose symbols cannot be read.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum SymbolsError {
    #[error("not an ELF file of 64 bits with symbols")]
    Elf(#[source] object::Error),
    #[error("the name of symbol {0} is outside the table of names")]
    Name(usize),
}

/// Cuts names that are longer than `longest` in the content of a program, in place; returns how many.
pub(super) fn shorten_names(content: &mut [u8], longest: usize) -> Result<usize, SymbolsError> {
    let (names, starts) = name_table(content).map_err(SymbolsError::Elf)?;
    let mut cut = 0;
    for (index, start) in starts.into_iter().enumerate() {
        let table = content.get_mut(names.clone());
        let name = table.and_then(|table| table.get_mut(start..));
        let name = name.ok_or(SymbolsError::Name(index))?;
        let length = name.iter().position(|byte| *byte == 0);
        let length = length.ok_or(SymbolsError::Name(index))?;
        if length > longest {
            name.copy_within(length - KEPT_END..=length, longest - KEPT_END);
            cut += 1;
        }
    }
    Ok(cut)
}

/// Where the names of symbols are in the file, and where in them each name begins.
fn name_table(content: &[u8]) -> object::Result<(std::ops::Range<usize>, Vec<usize>)> {
    let header = FileHeader64::<Endianness>::parse(content)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, content)?;
    let symbols = sections.symbols(endian, content, SHT_SYMTAB)?;
    let names = sections.section(symbols.string_section())?;
    let start = names.sh_offset(endian) as usize;
    let length = names.sh_size(endian) as usize;
    let starts = (1..symbols.len()).map(|index| {
        let symbol = symbols.symbol(SymbolIndex(index))?;
        Ok(symbol.st_name(endian) as usize)
    });
    Ok((
        start..start.saturating_add(length),
        starts.collect::<object::Result<_>>()?,
    ))
}

#[cfg(test)]
mod tests {
    use object::read::elf::SymbolTable;

    use super::*;

    fn lengths(content: &[u8]) -> Vec<usize> {
        let header = FileHeader64::<Endianness>::parse(content).unwrap();
        let endian = header.endian().unwrap();
        let sections = header.sections(endian, content).unwrap();
        let table: SymbolTable<'_, _> = sections.symbols(endian, content, SHT_SYMTAB).unwrap();
        let name = |symbol| table.symbol_name(endian, symbol).unwrap();
        table.iter().map(|symbol| name(symbol).len()).collect()
    }

    #[test]
    fn long_names_of_this_program_are_cut_and_short_ones_stay() {
        let mut content = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let before = lengths(&content);
        assert!(before.iter().any(|length| *length > 100));
        assert!(shorten_names(&mut content, 100).unwrap() > 0);
        let expected: Vec<_> = before.iter().map(|length| (*length).min(100)).collect();
        assert_eq!(lengths(&content), expected);
        assert_eq!(shorten_names(&mut content, 100).unwrap(), 0);
    }

    #[test]
    fn other_files_are_an_error() {
        for content in [&b"#!/bin/sh\n"[..], b"", b"\x7fELF"] {
            let error = shorten_names(&mut content.to_vec(), MAX_NAME);
            assert!(matches!(error, Err(SymbolsError::Elf(_))));
        }
    }
}
