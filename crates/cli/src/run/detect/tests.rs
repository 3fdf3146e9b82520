use super::*;

use std::fs;

#[test]
fn libraries_are_known_by_name_and_version() {
    for (file, abi) in [
        ("libmpi.so.12", Some(Abi::Mpich)),
        ("libmpi.so.12.5.0", Some(Abi::Mpich)),
        ("libmpich.so.12", Some(Abi::Mpich)),
        ("libmpi.so.40", Some(Abi::OpenMpi)),
        ("libmpi.so.40.40.7", Some(Abi::OpenMpi)),
        ("libmpi_abi.so.1", Some(Abi::Standard)),
        ("libmpi.so.120", None),
        ("libmpichcxx.so.12", None),
        ("libmpi_mpifh.so.40", None),
    ] {
        assert_eq!(Abi::of_library(file), abi, "{file}");
    }
}

#[test]
fn a_loaders_listing_is_read() {
    let listing = "\tlinux-vdso.so.1 (0x00007ffd)\n\
                   \tlibmpi.so.40 => /opt/open mpi (x)/libmpi.so.40 (0x00007f00)\n\
                   \tlibfoo.so => not found\n\
                   \t/lib64/ld-linux-x86-64.so.2 (0x00007f01)\n";
    assert_eq!(resolved(listing), [Path::new("/opt/open mpi (x)/libmpi.so.40")]);
}

#[test]
fn a_loaders_complaint_is_read() {
    for (complaint, library) in [
        (
            "./app: error while loading shared libraries: libmpi.so.12: cannot open shared object file",
            Some("libmpi.so.12"),
        ),
        (
            "Error loading shared library libmpi.so.40: No such file or directory (needed by ./app)",
            Some("libmpi.so.40"),
        ),
        (
            "./libmpi: error while loading shared libraries: libmpifort.so.12: cannot open shared object file",
            Some("libmpifort.so.12"),
        ),
        ("./lib.so: it is no program", None),
    ] {
        assert_eq!(missing_library(complaint).as_deref(), library);
    }
}

#[test]
fn interpreters_are_read_from_the_first_line() {
    for (line, path) in [
        ("#!/usr/bin/python3\n", Some("/usr/bin/python3")),
        ("#! /usr/bin/env python3 -u\nx", Some("python3")),
        ("#!/usr/bin/env -S A=1 python3.12 -u\n", Some("python3.12")),
        ("#!/bin/sh", Some("/bin/sh")),
        ("#!\n", None),
        ("#!/usr/bin/env\n", None),
    ] {
        assert_eq!(interpreter(line.as_bytes()).as_deref(), path.map(Path::new), "{line}");
    }
    for (name, is) in [
        ("python", true),
        ("/x/python3.12", true),
        ("pypy3", true),
        ("python3-config", false),
        ("pythonic", false),
    ] {
        assert_eq!(is_python(Path::new(name)), is, "{name}");
    }
}

/// A directory with files that look like programs.
struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn put(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.path().join(name);
        polyrail_testing::executable(&path, text);
        path
    }

    /// Compiles a program with `compiler`; `None`, with a word why, if that is not installed.
    #[track_caller]
    fn compile(&self, compiler: &Path, name: &str, options: &[&str]) -> Option<PathBuf> {
        let source = self.put("program.c", "#ifdef MPI\n#include <mpi.h>\nint main(void) { return MPI_Init(0, 0); }\n#else\nint main(void) { return 0; }\n#endif\n");
        let program = self.0.path().join(name);
        let built = Command::new(compiler).args(options).arg("-o").arg(&program).arg(source).output();
        match built {
            Ok(output) if output.status.success() => Some(program),
            Ok(output) => panic!("{}: {}", compiler.display(), String::from_utf8_lossy(&output.stderr)),
            Err(error) => {
                polyrail_testing::lacking(format_args!("{}: {error}", compiler.display()));
                None
            }
        }
    }
}

/// A file of the environments that set-up makes at the top of the tree.
fn set_up(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.venv").join(path)
}

fn detected(program: &Path) -> Result<Found, Error> {
    detect(program.as_os_str(), &[])
}

#[test]
fn real_programs_show_their_mpi() {
    let files = Files::new();
    for (compiler, abi, prefix) in [
        ("mpich/bin/mpicc", Abi::Mpich, "mpich"),
        ("mpich/bin/mpicc_abi", Abi::Standard, "mpich"),
        ("openmpi/bin/mpicc", Abi::OpenMpi, "openmpi"),
    ] {
        let Some(program) = files.compile(&set_up(compiler), "app", &["-DMPI"]) else { continue };
        let found = detected(&program).unwrap();
        assert_eq!(found.abi, abi, "{found:?}");
        assert!(
            found.library.canonicalize().unwrap().starts_with(set_up(prefix).canonicalize().unwrap()),
            "{found:?}"
        );
        assert!(found.has_libfabric(), "{found:?}");

        // behind a program that starts it
        let words = ["1".into(), "-x".into(), program.clone().into()];
        assert_eq!(detect("env".as_ref(), &words).unwrap().library, found.library);
    }
}

#[test]
fn programs_without_mpi_are_refused_with_the_reason() {
    let files = Files::new();
    let refused = |path: &Path| detected(path).unwrap_err().to_string();
    if let Some(program) = files.compile("cc".as_ref(), "plain", &[]) {
        assert!(refused(&program).contains("it loads no MPI library"));
    }
    if let Some(program) = files.compile("cc".as_ref(), "static", &["-static"]) {
        assert!(matches!(detected(&program), Err(Error::Static { .. })));
    }
    assert!(
        refused(&files.put("job.sh", "#!/bin/bash\nexec ./app\n")).contains("it is a script of /bin/bash")
    );
    assert!(refused(&files.put("data", "1 2 3")).contains("neither a compiled program nor a script"));
    assert!(refused(&files.put("broken", "\x7fELF")).contains("64-bit"));
    assert!(matches!(detected(Path::new("/none/app")), Err(Error::NotFound { .. })));
    assert!(matches!(detected(Path::new("no-such-program-anywhere")), Err(Error::NotFound { .. })));
}

#[test]
fn a_missing_library_is_named() {
    let files = Files::new();
    let Some(library) =
        files.compile("cc".as_ref(), "libmpi.so.12", &["-shared", "-fPIC", "-Wl,-soname,libmpi.so.12"])
    else {
        return;
    };
    let linked = ["-Wl,--no-as-needed", library.to_str().unwrap()];
    let program = files.compile("cc".as_ref(), "app", &linked).unwrap();
    fs::remove_file(&library).unwrap();
    match detected(&program) {
        Err(Error::LibraryMissing { library, .. }) => assert_eq!(library, "libmpi.so.12"),
        other => panic!("{other:?}"),
    }
    let error = |library: &str| {
        let program = program.clone();
        Error::LibraryMissing { program, library: library.into() }.to_string()
    };
    assert!(error("libmpifort.so.12").contains("Fortran") && !error("libmpi.so.12").contains("Fortran"));
}

#[test]
fn python_shows_the_mpi_of_its_mpi4py() {
    for (name, abi) in [("mpich", Abi::Mpich), ("openmpi", Abi::OpenMpi)] {
        let python = set_up(&format!("{name}/bin/python"));
        if !python.exists() {
            polyrail_testing::lacking(python.display());
            continue;
        }
        let found = detect(python.as_os_str(), &["script.py".into()]).unwrap();
        assert!(found.abi == abi && found.has_libfabric(), "{found:?}");

        let files = Files::new();
        let script = files.put("script.py", &format!("#!{}\nimport mpi4py.MPI\n", python.display()));
        assert_eq!(detected(&script).unwrap().library, found.library);
    }
}

#[test]
fn a_python_without_mpi4py_is_refused() {
    let files = Files::new();
    let python = files.put("python3", "#!/bin/sh\nexit 86\n");
    assert!(detected(&python).unwrap_err().to_string().contains("no mpi4py"));
    let python = files.put("python3", "#!/bin/sh\necho cannot load MPI library >&2\nexit 1\n");
    assert!(detected(&python).unwrap_err().to_string().contains("cannot load MPI library"));
}

#[test]
fn a_sanitizer_has_to_be_loaded_first() {
    let found = |more: &str| {
        let libraries = ["/lib/libmpi.so.12", more].map(PathBuf::from);
        Found::among(libraries.into(), |_| String::new()).unwrap().first_of_all().map(Path::to_owned)
    };
    for first in ["/lib/libasan.so.8", "/lib/libtsan.so.2", "/lib/libclang_rt.asan-x86_64.so"] {
        assert_eq!(found(first), Some(first.into()));
    }
    for other in ["/lib/libc.so.6", "/lib/libubsan.so.1"] {
        assert_eq!(found(other), None);
    }
}
