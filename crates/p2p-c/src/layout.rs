//! The header's structs and constants, in its order; what they mean stands there.

use std::ffi::{c_int, c_void};

pub(crate) const P2P_E_USE: c_int = -1;
pub(crate) const P2P_E_CHANGED: c_int = -2;
pub(crate) const P2P_E_OUT: c_int = -3;
pub(crate) const P2P_E_GONE: c_int = -4;
pub(crate) const P2P_E_BREACH: c_int = -5;
pub(crate) const P2P_E_REFUSED: c_int = -6;
pub(crate) const P2P_E_SILENT: c_int = -7;
pub(crate) const P2P_E_RAILS: c_int = -8;
pub(crate) const P2P_E_LAUNCHER: c_int = -9;
pub(crate) const P2P_E_INTERNAL: c_int = -10;

pub(crate) const P2P_SYNCHRONOUS: u32 = 0;
pub(crate) const P2P_ASYNCHRONOUS: u32 = 1;
pub(crate) const P2P_BOUNDED: u32 = 2;
pub(crate) const P2P_HYBRID: u32 = 3;

pub(crate) const P2P_NOTHING: u32 = 0;
pub(crate) const P2P_UNCHANGED: u32 = 1;
pub(crate) const P2P_NEW: u32 = 2;

pub(crate) const P2P_ADDRESS: usize = 87;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct P2Pjob {
    pub(crate) size: usize,
    pub(crate) tolerance: f64,
    pub(crate) every: u64,
    pub(crate) keep: u64,
    pub(crate) bound: u64,
    pub(crate) task: *const c_void,
    pub(crate) task_len: usize,
    pub(crate) parts: u32,
    pub(crate) scheme: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct P2Psettings {
    pub(crate) size: usize,
    pub(crate) patience: f64,
    pub(crate) site: u32,
    pub(crate) weight: u32,
    pub(crate) looks_on: u32,
    pub(crate) reserved: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct P2Plink {
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) tag: u32,
}

#[repr(C)]
pub struct P2Pstatus {
    pub(crate) what: u32,
    pub(crate) reserved: u32,
    pub(crate) iteration: u64,
    pub(crate) age: f64,
}

#[repr(C)]
#[derive(Default)]
pub struct P2Pverdict {
    pub(crate) stop: u32,
    pub(crate) reserved: u32,
    pub(crate) round: u64,
    pub(crate) iteration: u64,
    pub(crate) norm: f64,
}

#[repr(C)]
pub struct P2Pset {
    pub(crate) state: *const c_void,
    pub(crate) len: usize,
    pub(crate) part: u32,
    pub(crate) reserved: u32,
}

#[repr(C)]
pub struct P2Pchanges {
    pub(crate) iteration: u64,
    pub(crate) lost: *const u32,
    pub(crate) lost_count: usize,
    pub(crate) set: *const P2Pset,
    pub(crate) set_count: usize,
}

#[repr(C)]
pub struct P2Ppiece {
    pub(crate) bytes: *const c_void,
    pub(crate) len: usize,
    pub(crate) member: u32,
    pub(crate) reserved: u32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write as _;
    use std::mem::{offset_of, size_of};
    use std::process::Command;

    /// The expressions in C, and the numbers that they have to be.
    fn expected() -> Vec<(String, i64)> {
        let mut all = Vec::new();
        macro_rules! constants {
            ($($name:ident)*) => {
                $(all.push((stringify!($name).to_owned(), $name as i64));)*
            };
        }
        macro_rules! structs {
            ($($name:ident { $($field:ident: $kind:literal),* })*) => {$(
                all.push((concat!("sizeof(", stringify!($name), ")").to_owned(), size_of::<$name>() as i64));
                $(
                    let place = concat!("offsetof(", stringify!($name), ", ", stringify!($field), ")");
                    all.push((place.to_owned(), offset_of!($name, $field) as i64));
                    // the letter stands for a type of C, by which the compiler chooses
                    let kind = format!(
                        "_Generic((({} *)0)->{}, size_t: 'n', double: 'd', uint32_t: 'i', const void *: 'v', const uint32_t *: 'p', const P2Pset *: 's')",
                        stringify!($name), stringify!($field)
                    );
                    all.push((kind, i64::from($kind)));
                )*
                // a struct with a field that is not named here is longer, or its last field ends before it does
                let named = [$(stringify!($field)),*].len() as i64;
                all.push((format!("sizeof(({}){{0}}) ? {named} : 0", stringify!($name)), named));
            )*};
        }
        constants!(P2P_E_USE P2P_E_CHANGED P2P_E_OUT P2P_E_GONE P2P_E_BREACH P2P_E_REFUSED P2P_E_SILENT P2P_E_RAILS
            P2P_E_LAUNCHER P2P_E_INTERNAL P2P_SYNCHRONOUS P2P_ASYNCHRONOUS P2P_BOUNDED P2P_HYBRID P2P_NOTHING
            P2P_UNCHANGED P2P_NEW P2P_ADDRESS);
        structs! {
            P2Pjob { size: b'n', tolerance: b'd', every: b'n', keep: b'n', bound: b'n', task: b'v', task_len: b'n', parts: b'i', scheme: b'i' }
            P2Psettings { size: b'n', patience: b'd', site: b'i', weight: b'i', looks_on: b'i', reserved: b'i' }
            P2Plink { from: b'i', to: b'i', tag: b'i' }
            P2Pstatus { what: b'i', reserved: b'i', iteration: b'n', age: b'd' }
            P2Pverdict { stop: b'i', reserved: b'i', round: b'n', iteration: b'n', norm: b'd' }
            P2Pset { state: b'v', len: b'n', part: b'i', reserved: b'i' }
            P2Pchanges { iteration: b'n', lost: b'p', lost_count: b'n', set: b's', set_count: b'n' }
            P2Ppiece { bytes: b'v', len: b'n', member: b'i', reserved: b'i' }
        }
        all
    }

    #[test]
    fn structs_and_constants_are_the_headers() {
        let expected = expected();
        let mut program = String::from("#include <polyrail/p2p.h>\n#include <stdio.h>\nint main(void) {\n");
        for (expression, _) in &expected {
            writeln!(program, "    printf(\"%lld\\n\", (long long)({expression}));").unwrap();
        }
        program.push_str("    return 0;\n}\n");
        let directory = tempfile::tempdir().expect("a directory");
        let (source, binary) = (directory.path().join("layout.c"), directory.path().join("layout"));
        std::fs::write(&source, program).expect("the source is written");
        let compiled = Command::new("cc")
            .args(["-std=c11", "-I", concat!(env!("CARGO_MANIFEST_DIR"), "/include")])
            .args([&source, &"-o".into(), &binary])
            .output()
            .expect("a C compiler, which links Rust programs too");
        assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
        let printed = Command::new(&binary).output().expect("the program runs").stdout;
        let printed = String::from_utf8(printed).expect("numbers");
        let printed: Vec<i64> = printed.lines().map(|line| line.parse().expect("a number")).collect();
        assert_eq!(printed.len(), expected.len());
        for ((expression, rust), c) in expected.iter().zip(printed) {
            assert_eq!(*rust, c, "{expression}: Rust and C");
        }
    }
}
