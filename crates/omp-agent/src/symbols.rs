//! Names of addresses of the program, for people: `field+16 (declared at fields.c:12)`, `smooth at smooth.c:40`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use gimli::{EndianReader, Reader, RunTimeEndian};
use object::{Object, ObjectSymbol, SymbolKind};
use polyrail_omp::layout;

type Bytes = EndianReader<RunTimeEndian, std::rc::Rc<[u8]>>;

/// A file that is mapped, and where.
struct Mapped {
    start: u64,
    end: u64,
    offset: u64,
    path: PathBuf,
}

/// What an address of a process is called.
pub struct Symbols {
    mapped: Vec<Mapped>,
    heap: Option<(u64, u64)>,
    stack: Option<(u64, u64)>,
    files: BTreeMap<PathBuf, Option<File>>,
}

/// A program or library.
struct File {
    lines: addr2line::Loader,
    /// Address, size, name.
    data: Vec<(u64, u64, String)>,
    /// Address to file and line of global variables' declarations.
    declared: BTreeMap<u64, String>,
    /// Begins of its segments in the file, their sizes and their addresses.
    segments: Vec<(u64, u64, u64)>,
}

impl Symbols {
    /// Programs and libraries that are mapped.
    pub fn paths(&self) -> BTreeSet<PathBuf> {
        self.mapped.iter().map(|mapped| mapped.path.clone()).collect()
    }

    /// The program or library that has an address.
    pub fn path(&self, address: u64) -> Option<&Path> {
        let mapped = self.mapped.iter().find(|mapped| (mapped.start..mapped.end).contains(&address))?;
        Some(&mapped.path)
    }

    /// Of a process that is still there; nothing is known of one that is not.
    pub fn of(pid: u32) -> Symbols {
        let mut symbols = Symbols { mapped: Vec::new(), heap: None, stack: None, files: BTreeMap::new() };
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        for line in maps.lines() {
            let mut words = line.split_ascii_whitespace();
            let (Some(range), _, Some(offset)) = (words.next(), words.next(), words.next()) else { continue };
            let hex = |text: &str| u64::from_str_radix(text, 16).ok();
            let Some((start, end)) =
                range.split_once('-').and_then(|(start, end)| Some((hex(start)?, hex(end)?)))
            else {
                continue;
            };
            match words.nth(2) {
                Some("[heap]") => symbols.heap = Some((start, end)),
                Some("[stack]") => symbols.stack = Some((start, end)),
                Some(path) if path.starts_with('/') => {
                    symbols.mapped.push(Mapped {
                        start,
                        end,
                        offset: hex(offset).unwrap_or(0),
                        path: path.into(),
                    });
                }
                // what follows a file's data is its zero-initialized data
                None => {
                    if let Some(last) = symbols.mapped.last()
                        && last.end == start
                    {
                        let (offset, path) = (last.offset + (start - last.start), last.path.clone());
                        symbols.mapped.push(Mapped { start, end, offset, path });
                    }
                }
                Some(_) => {}
            }
        }
        symbols
    }

    /// A name, if there is one.
    pub fn name(&mut self, address: u64) -> Option<String> {
        let heaps = layout::SERIAL_HEAP as u64..layout::PRIVATE_HEAP as u64;
        if heaps.contains(&address) || self.heap.is_some_and(|(start, end)| (start..end).contains(&address)) {
            return Some("allocated memory".into());
        }
        if self.stack.is_some_and(|(start, end)| (start..end).contains(&address)) {
            return Some("a variable on the main thread's stack".into());
        }
        let path = self.path(address)?.to_path_buf();
        let first = self.mapped.iter().find(|mapped| mapped.path == path)?;
        let file = self.files.entry(path.clone()).or_insert_with(|| File::read(&path)).as_ref()?;
        let bias = first.start.wrapping_sub(file.address_of(first.offset)?);
        let inside = address.wrapping_sub(bias);
        let name = file.name(inside)?;
        Some(name)
    }

    /// A text with what its addresses (`0x...`) are called.
    pub fn explain(&mut self, text: &str) -> String {
        let mut explained = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find("0x") {
            let digits = rest[at + 2..].chars().take_while(char::is_ascii_hexdigit).count();
            let (before, after) = rest.split_at(at + 2 + digits);
            explained += before;
            rest = after;
            // small numbers are values
            if digits >= 6
                && let Ok(address) = u64::from_str_radix(&before[at + 2..], 16)
                && let Some(name) = self.name(address)
            {
                let _ = write!(explained, " ({name})");
            }
        }
        explained + rest
    }
}

/// A name as the program has it. Not all that could be a mangled name is one: C's variables are called `h` or `x`, which stand for types in mangled names.
fn readable(name: &str) -> String {
    match name.starts_with("_Z") || name.starts_with("_R") {
        true => addr2line::demangle_auto(name.into(), None).into_owned(),
        false => name.into(),
    }
}

impl File {
    fn read(path: &PathBuf) -> Option<File> {
        use object::ObjectSegment;
        let lines = addr2line::Loader::new(path).ok()?;
        let bytes = fs::read(path).ok()?;
        let object = object::File::parse(&*bytes).ok()?;
        let segments = object
            .segments()
            .map(|segment| {
                (segment.file_range().0, segment.size().max(segment.file_range().1), segment.address())
            })
            .collect();
        let mut data: Vec<_> = object
            .symbols()
            .chain(object.dynamic_symbols())
            .filter(|symbol| symbol.kind() == SymbolKind::Data && symbol.is_definition())
            .filter_map(|symbol| Some((symbol.address(), symbol.size(), readable(symbol.name().ok()?))))
            .collect();
        data.sort();
        data.dedup();
        let declared = declarations(&object).unwrap_or_default();
        Some(File { lines, data, declared, segments })
    }

    /// The address, as the file has it, of a place in the file.
    fn address_of(&self, offset: u64) -> Option<u64> {
        let (start, _, address) = self
            .segments
            .iter()
            .find(|(start, size, _)| offset >= start & !(layout::PAGE as u64 - 1) && offset < start + size)?;
        Some((address & !(layout::PAGE as u64 - 1)) + offset - (start & !(layout::PAGE as u64 - 1)))
    }

    fn name(&self, address: u64) -> Option<String> {
        let variable =
            self.data.iter().find(|(start, size, _)| (*start..start + (*size).max(1)).contains(&address));
        if let Some((start, _, name)) = variable {
            let mut text = name.clone();
            if address > *start {
                let _ = write!(text, "+{}", address - start);
            }
            if let Some(place) = self.declared.get(start) {
                let _ = write!(text, ", declared at {place}");
            }
            return Some(text);
        }
        let function = self.lines.find_symbol(address)?.to_string();
        let place = self.lines.find_location(address).ok().flatten();
        let line =
            place.and_then(|place| Some(format!(" at {}:{}", place.file?.rsplit('/').next()?, place.line?)));
        Some(function + &line.unwrap_or_default())
    }
}

/// Where global variables are declared, by their addresses (DWARF 5, 2.5 and 4.1: a location that is one address).
fn declarations(object: &object::File<'_>) -> Result<BTreeMap<u64, String>, gimli::Error> {
    use object::ObjectSection;
    let mut found = BTreeMap::new();
    let load = |section: gimli::SectionId| -> Result<Bytes, gimli::Error> {
        let bytes =
            object.section_by_name(section.name()).and_then(|section| section.uncompressed_data().ok());
        Ok(EndianReader::new(bytes.unwrap_or_default().into(), RunTimeEndian::Little))
    };
    let dwarf = gimli::Dwarf::load(load)?;
    let mut headers = dwarf.units();
    while let Some(header) = headers.next()? {
        let unit = dwarf.unit(header)?;
        let mut entries = unit.entries();
        while let Some(entry) = entries.next_dfs()? {
            if entry.tag() != gimli::DW_TAG_variable {
                continue;
            }
            let Some(gimli::AttributeValue::Exprloc(expression)) = entry.attr_value(gimli::DW_AT_location)
            else {
                continue;
            };
            let Ok(Some(gimli::Operation::Address { address })) =
                expression.operations(unit.encoding()).next()
            else {
                continue;
            };
            let (Some(gimli::AttributeValue::FileIndex(file)), Some(line)) =
                (entry.attr_value(gimli::DW_AT_decl_file), entry.attr_value(gimli::DW_AT_decl_line))
            else {
                continue;
            };
            let name = unit.line_program.as_ref().and_then(|program| {
                let file = program.header().file(file)?;
                let name = dwarf.attr_string(&unit, file.path_name()).ok()?;
                name.to_string_lossy().ok().map(|name| name.into_owned())
            });
            if let (Some(name), Some(line)) = (name, line.udata_value()) {
                found.insert(address, format!("{}:{line}", name.rsplit('/').next().unwrap_or(&name)));
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    static FIELD: [u64; 100] = [7; 100];

    #[test]
    fn names_of_c_are_not_demangled() {
        assert_eq!(["h", "x", "b", "counts"].map(readable), ["h", "x", "b", "counts"]);
        assert_eq!(readable("_ZN5place4nameE"), "place::name");
    }

    #[test]
    fn variables_and_functions_of_this_program() {
        let mut symbols = Symbols::of(std::process::id());
        let here = symbols.name(FIELD[3..].as_ptr() as u64).unwrap();
        // optimized builds know lines, but not variables
        let declared = !cfg!(debug_assertions) || here.contains("declared at symbols.rs:");
        assert!(here.contains("FIELD") && here.contains("+24") && declared, "{here}");
        let function = symbols.name(variables_and_functions_of_this_program as *const () as u64).unwrap();
        assert!(
            function.contains("variables_and_functions") && function.contains("symbols.rs:"),
            "{function}"
        );
        let program = std::env::current_exe().unwrap();
        let own = variables_and_functions_of_this_program as *const () as u64;
        assert_eq!(symbols.path(own), Some(program.as_path()));
        assert_eq!((symbols.name(0x10), symbols.path(0x10)), (None, None));
        let text = format!("{:#x} is not {:#x}", layout::SERIAL_HEAP, 17);
        assert_eq!(
            symbols.explain(&text),
            format!("{:#x} (allocated memory) is not 0x11", layout::SERIAL_HEAP)
        );
    }
}
