//! What is loaded in this process: the program, its own libraries, and the system's.

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
    pub segments: Vec<Segment>,
    /// Read-only after relocation.
    pub relro: Option<Range<usize>>,
    /// The table of functions that unwinding uses (`PT_GNU_EH_FRAME`).
    pub frames: Option<usize>,
    /// What the loader needs (`PT_DYNAMIC`).
    pub dynamic: Option<usize>,
    /// The piece of the calling thread's storage that is this module's.
    pub local: Option<Range<usize>>,
}

impl Module {
    /// Whether its data are the program's, so that all ranks share them.
    pub fn is_shared(&self) -> bool {
        let file = self.name.rsplit('/').next().unwrap_or_default();
        let own = all as *const () as usize;
        let ours = self.segments.iter().any(|segment| (segment.start..segment.end).contains(&own));
        !ours && !polyrail_omp::is_systems(file)
    }
}

impl Module {
    /// Whether a name is among those that the loader knows of it: it defines it, or uses it.
    pub fn names(&self, name: &str) -> bool {
        const STRTAB: usize = 5;
        const STRSZ: usize = 10;
        let Some(mut at) = self.dynamic else { return false };
        let (mut table, mut size) = (0, 0);
        // SAFETY: the loader's table of pairs, which ends with zero; it has made addresses of what is in memory
        let names = unsafe {
            loop {
                match *(at as *const [usize; 2]) {
                    [0, _] => break,
                    [STRTAB, address] => table = address,
                    [STRSZ, bytes] => size = bytes,
                    _ => {}
                }
                at += 16;
            }
            if table == 0 {
                return false;
            }
            core::slice::from_raw_parts(table as *const u8, size)
        };
        names.split(|byte| *byte == 0).any(|other| other == name.as_bytes())
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
                segments: Vec::new(),
                relro: None,
                frames: None,
                dynamic: None,
                local: None,
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
                    libc::PT_GNU_EH_FRAME => module.frames = Some(start),
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
