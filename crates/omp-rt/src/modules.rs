//! What is loaded in this process: the program, its own libraries, and the system's.

use core::cell::OnceCell;
use core::ffi::CStr;
use core::ops::Range;

/// A piece of a module in memory.
#[derive(Clone, Debug)]
pub struct Segment {
    pub start: usize,
    pub end: usize,
    pub writable: bool,
    pub executable: bool,
}

/// The program or a library.
#[derive(Clone, Debug)]
pub struct Module {
    /// Empty for the program itself.
    pub name: String,
    /// What is added to addresses in its file.
    pub base: usize,
    pub segments: Vec<Segment>,
    /// Read-only after relocation.
    pub relro: Option<Range<usize>>,
    /// What the loader needs (`PT_DYNAMIC`).
    pub dynamic: Option<usize>,
    /// The piece of the calling thread's storage that is this module's.
    pub local: Option<Range<usize>>,
    /// What it calls ([`Module::called_by`]), once that was asked for.
    calls: OnceCell<Vec<(usize, u32)>>,
}

impl Module {
    /// Whether its data are the program's, so that all ranks share them.
    pub fn is_shared(&self) -> bool {
        let file = self.name.rsplit('/').next().unwrap_or_default();
        !self.is_ours() && !polyrail_omp::is_systems(file)
    }

    /// Whether it is this runtime.
    pub fn is_ours(&self) -> bool {
        let own = all as *const () as usize;
        self.segments.iter().any(|segment| (segment.start..segment.end).contains(&own))
    }
}

impl Module {
    /// What the loader has found out of it (`PT_DYNAMIC`) by this tag; addresses, if it is one, of what is in memory.
    fn entry(&self, tag: usize) -> Option<usize> {
        let mut at = self.dynamic?;
        loop {
            // SAFETY: the loader's table of pairs, which ends with zero
            match unsafe { *(at as *const [usize; 2]) } {
                [0, _] => return None,
                [found, value] if found == tag => return Some(value),
                _ => at += 16,
            }
        }
    }

    /// Names that the loader knows of it.
    fn strings(&self) -> &[u8] {
        const STRTAB: usize = 5;
        const STRSZ: usize = 10;
        match (self.entry(STRTAB), self.entry(STRSZ)) {
            // SAFETY: the loader has made an address of it
            (Some(table), Some(size)) if table > 0 => unsafe {
                core::slice::from_raw_parts(table as *const u8, size)
            },
            _ => &[],
        }
    }

    /// Whether a name is among those that the loader knows of it: it defines it, or uses it.
    pub fn names(&self, name: &str) -> bool {
        // the table begins with an empty name; large programs have megabytes of them
        let (names, one) = (self.strings(), [b"\0", name.as_bytes(), b"\0"].concat());
        // SAFETY: two pieces of memory with their lengths
        let found =
            unsafe { libc::memmem(names.as_ptr().cast(), names.len(), one.as_ptr().cast(), one.len()) };
        !found.is_null()
    }

    /// What it calls by the pointer at `slot`, which the loader sets (ELF gABI, "Relocation").
    pub fn called_by(&self, slot: usize) -> Option<&str> {
        let calls = self.calls.get_or_init(|| self.calls());
        let at = calls.binary_search_by_key(&slot, |call| call.0).ok()?;
        let name = self.strings().get(calls[at].1 as usize..)?.split(|byte| *byte == 0).next()?;
        core::str::from_utf8(name).ok()
    }

    /// Pointers that the loader sets, in order of addresses, and where the names stand of what they point to.
    fn calls(&self) -> Vec<(usize, u32)> {
        const SYMTAB: usize = 6;
        /// Tables of relocations, and their sizes.
        const TABLES: [[usize; 2]; 2] = [[23, 2], [7, 8]];
        /// Of pointers to functions, and to anything (x86-64 psABI, "Relocation Types").
        const KINDS: [usize; 2] = [7, 6];
        let Some(symbols) = self.entry(SYMTAB) else { return Vec::new() };
        let mut calls = Vec::new();
        for [table, size] in TABLES {
            let (Some(table), Some(size)) = (self.entry(table), self.entry(size)) else { continue };
            // SAFETY: the loader's tables of relocations, three words each
            let relocations = unsafe { core::slice::from_raw_parts(table as *const [usize; 3], size / 24) };
            calls.extend(relocations.iter().filter(|one| KINDS.contains(&(one[1] & 0xffff_ffff))).map(
                |one| {
                    // SAFETY: the symbol's entry, of 24 bytes, which begins with its name's place
                    let name = unsafe { *((symbols + (one[1] >> 32) * 24) as *const u32) };
                    (one[0].wrapping_add(self.base), name)
                },
            ));
        }
        calls.sort_unstable();
        calls
    }
}

/// All that is loaded, in the loader's order: the program first.
pub fn all() -> Vec<Module> {
    unsafe extern "C" fn each(info: *mut libc::dl_phdr_info, _: usize, into: *mut libc::c_void) -> i32 {
        // SAFETY: the loader's description of a module, valid during the call
        unsafe {
            let (info, into) = (&*info, &mut *into.cast::<Vec<Module>>());
            let name = if info.dlpi_name.is_null() {
                "".into()
            } else {
                CStr::from_ptr(info.dlpi_name).to_string_lossy()
            };
            let base = info.dlpi_addr as usize;
            let mut module = Module {
                name: name.into_owned(),
                base,
                segments: Vec::new(),
                relro: None,
                dynamic: None,
                local: None,
                calls: OnceCell::new(),
            };
            for header in std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) {
                let start = base + header.p_vaddr as usize;
                let end = start + header.p_memsz as usize;
                match header.p_type {
                    libc::PT_LOAD => module.segments.push(Segment {
                        start,
                        end,
                        writable: header.p_flags & libc::PF_W != 0,
                        executable: header.p_flags & libc::PF_X != 0,
                    }),
                    libc::PT_GNU_RELRO => module.relro = Some(start..end),
                    libc::PT_DYNAMIC => module.dynamic = Some(start),
                    libc::PT_TLS if !info.dlpi_tls_data.is_null() => {
                        let local = info.dlpi_tls_data as usize;
                        module.local = Some(local..local + header.p_memsz as usize);
                    }
                    _ => {}
                }
            }
            into.push(module);
        }
        0
    }
    let mut modules: Vec<Module> = Vec::new();
    // SAFETY: `each` takes what is given here
    unsafe { libc::dl_iterate_phdr(Some(each), (&raw mut modules).cast()) };
    modules
}

/// All that is loaded and where, a line each; but the kernel's own page, which may be of another version elsewhere, and is used by nothing that is kept or shared.
pub fn text() -> String {
    let line = |module: Module| {
        let name = if module.name.is_empty() { "the program" } else { &module.name };
        let (first, last) = (module.segments.first(), module.segments.last());
        let (start, end) = (first.map_or(0, |segment| segment.start), last.map_or(0, |segment| segment.end));
        (!name.starts_with("linux-vdso")).then(|| format!("{name} at {start:#x} to {end:#x}\n"))
    };
    all().into_iter().filter_map(line).collect()
}

/// Those whose data are the program's.
pub fn shared() -> impl Iterator<Item = Module> {
    all().into_iter().filter(Module::is_shared)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_this_program_uses() {
        let all = all();
        // the test is our library: its data are this process's
        assert!(!all[0].is_shared() && all[0].names("__libc_start_main") && !all[0].names("__kmpc_flush"));
        assert!(all.iter().any(|module| module.name.contains("libc.so") && !module.is_shared()));
    }
}
