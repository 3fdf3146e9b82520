//! Builds the stand-ins: shared objects without contents that bear the names and version definitions of the compilers' OpenMP runtimes, so that the loader,
//! finding them loaded, neither loads the real ones nor complains. The symbols themselves are the runtime's (`crates/omp-rt`).
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::{env, fs};

/// Names that programs ask for: gcc's; Debian's clang's; LLVM's own; Intel's and what LLVM links to it.
const NAMES: [&str; 4] = ["libgomp.so.1", "libomp.so.5", "libomp.so", "libiomp5.so"];

/// What the runtimes define, and some of what later ones will.
const VERSIONS: &str = "VERSION GOMP_1.0 GOMP_2.0 GOMP_3.0 GOMP_4.0 GOMP_4.0.1 GOMP_4.5 GOMP_5.0 GOMP_5.0.1 GOMP_5.1 GOMP_5.1.1 GOMP_5.1.2 GOMP_5.1.3 GOMP_6.0 \
    OMP_1.0 OMP_2.0 OMP_3.0 OMP_3.1 OMP_4.0 OMP_4.5 OMP_5.0 OMP_5.0.1 OMP_5.0.2 OMP_5.0.3 OMP_5.1 OMP_5.1.1 OMP_5.2 OMP_5.2.1 OMP_5.2.2 OMP_6.0 \
    OACC_2.0 OACC_2.0.1 OACC_2.5 OACC_2.5.1 OACC_2.6 GOACC_2.0 GOACC_2.0.1 GOACC_2.0.2 \
    GOMP_PLUGIN_1.0 GOMP_PLUGIN_1.1 GOMP_PLUGIN_1.2 GOMP_PLUGIN_1.3 GOMP_PLUGIN_1.4";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let dir = env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    let dir = Path::new(&dir);
    let (source, script) = (dir.join("empty.c"), dir.join("versions.map"));
    fs::write(&source, "").expect("OUT_DIR is writable");
    let mut map = String::new();
    for version in VERSIONS.split_whitespace() {
        writeln!(map, "{version} {{ }};").expect("strings take everything");
    }
    fs::write(&script, map).expect("OUT_DIR is writable");
    for name in NAMES {
        let status = Command::new("cc")
            .args([
                "-shared",
                "-nostdlib",
                "-Wl,--hash-style=gnu,--build-id=none,-z,noexecstack,-z,separate-code",
            ])
            .arg(format!("-Wl,-soname,{name}"))
            .arg(format!("-Wl,--version-script,{}", script.display()))
            .arg("-o")
            .arg(dir.join(name))
            .arg(&source)
            .status()
            .expect("a C compiler, which links Rust programs too");
        assert!(status.success(), "cc could not make {name}");
    }
}
