//! Compares `ffi` with libfabric's headers: a C program prints every size, offset and constant, and whether
//! each field's type is what Rust says.
//!
//! The headers are those in /usr/include (Debian: libfabric-dev), or in the directory that
//! `POLYRAIL_FABRIC_HEADERS` names; the compiler is `CC` or `cc`. Without them the test is skipped, and says so.
//! Any version from 1.17 on will do: libfabric appends to structs and lists of constants, so
//! - headers older than 2.5 may lack the names marked late, and a struct ends before its first missing field;
//! - structs of headers newer than 2.5 may be longer than ours.

#[path = "layout/names.rs"]
mod names;
#[path = "layout/source.rs"]
mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use names::{Struct, consts, structs};
use source::Source;

const HEADERS: [&str; 12] = [
    "fabric.h",
    "fi_errno.h",
    "fi_domain.h",
    "fi_endpoint.h",
    "fi_cm.h",
    "fi_eq.h",
    "fi_rma.h",
    "fi_tagged.h",
    "fi_atomic.h",
    "fi_collective.h",
    "fi_ext.h",
    "providers/fi_log.h",
];

/// The version of libfabric whose definitions `ffi` holds.
const OURS: (u64, u64) = (2, 5);

/// In C a union with another name for the type that counts.
const UNIONS: [(&str, &str); 2] = [("fi_mr_attr", "device"), ("fi_bus_attr", "attr")];

#[test]
fn lists_name_all_that_is_declared() {
    let source = Source::read();
    let declared: BTreeMap<_, Vec<_>> = source
        .structs
        .iter()
        .map(|(name, fields)| (name.as_str(), fields.iter().map(|(field, _)| field.as_str()).collect()))
        .collect();
    let listed: BTreeMap<_, Vec<_>> =
        structs().iter().map(|s| (s.name, s.fields.iter().map(|field| field.name).collect())).collect();
    assert_eq!(declared, listed);

    let declared: BTreeSet<_> = source.consts.iter().map(String::as_str).collect();
    let listed: BTreeSet<_> = consts().iter().map(|constant| constant.name).collect();
    assert_eq!(declared, listed);
}

#[test]
fn definitions_match_the_headers() {
    let compiler = match Compiler::find() {
        Ok(compiler) => compiler,
        Err(reason) => return polyrail_testing::lacking(format_args!("what it compares with: {reason}")),
    };
    let declared = compiler.declared();
    let c = compiler.run(&program(&declared));
    let version = (c["FI_MAJOR_VERSION"], c["FI_MINOR_VERSION"]);

    let mut wrong = Vec::new();
    let mut check = |what: String, late: bool, holds: &dyn Fn(u64) -> bool, expected: u64| match c.get(&what)
    {
        Some(&value) if holds(value) => {}
        Some(value) => wrong.push(format!("{what}: C {value:#x}, Rust {expected:#x}")),
        None if late && version < OURS => {}
        None => wrong.push(format!("{what}: not in the headers")),
    };
    for constant in consts() {
        let value = constant.value;
        check(constant.name.into(), constant.late, &|c| c == value, value);
    }
    for s in structs() {
        for field in &s.fields {
            let offset = field.offset as u64;
            check(format!("offset {}.{}", s.name, field.name), field.late, &|c| c == offset, offset);
            check(format!("type {}.{}", s.name, field.name), field.late, &|c| c == 1, 1);
        }
        let size = size_in(&s, &declared);
        let longer = version > OURS;
        check(format!("size {}", s.name), size == 0, &|c| c == size || longer && c > size, size);
    }
    assert!(wrong.is_empty(), "headers of {version:?} in {:?}:\n{}", compiler.include, wrong.join("\n"));
    eprintln!("compared {} values with the headers of {version:?}", c.len());
}

/// Where the struct of these headers should end, going by Rust's: 0 if they have not even its first field.
fn size_in(s: &Struct, declared: &Declared) -> u64 {
    let missing = s.fields.iter().find(|field| !declared.field(s.name, field.name));
    let ours = missing.map_or(s.size, |field| field.offset) as u64;
    if s.name != "fi_mr_modify" {
        return ours;
    }
    // Its last field is a struct that has grown.
    let attr = structs().into_iter().find(|s| s.name == "fi_mr_attr").expect("fi_mr_attr is listed");
    ours - attr.size as u64 + size_in(&attr, declared)
}

/// A program that prints `name value` for all that is declared.
fn program(declared: &Declared) -> String {
    let source = Source::read();
    let mut text = includes();
    text.push_str("#include <stdio.h>\nint main(void) {\n");
    let mut print = |name: &str, value: &str| {
        writeln!(text, "printf(\"%s=%llu\\n\", \"{name}\", (unsigned long long)({value}));").unwrap();
    };
    for name in ["FI_MAJOR_VERSION", "FI_MINOR_VERSION"] {
        print(name, name);
    }
    for constant in consts().iter().filter(|constant| declared.word(constant.name)) {
        print(constant.name, constant.name);
    }
    for s in structs().iter().filter(|s| declared.bodies.contains_key(s.name)) {
        let name = s.name;
        print(&format!("size {name}"), &format!("sizeof(struct {name})"));
        for (field, r#type) in source.structs[name].iter().filter(|(field, _)| declared.field(name, field)) {
            print(&format!("offset {name}.{field}"), &format!("offsetof(struct {name}, {field})"));
            let same = format!(
                "__builtin_types_compatible_p(__typeof__(((struct {name} *)0)->{field}), {})",
                source.c_type(r#type)
            );
            let union = UNIONS.contains(&(name, field.as_str()));
            print(&format!("type {name}.{field}"), if union { "1" } else { &same });
        }
    }
    text.push_str("return 0; }\n");
    text
}

fn includes() -> String {
    HEADERS.iter().fold(String::new(), |text, header| text + "#include <rdma/" + header + ">\n")
}

/// What the headers declare, without their comments.
struct Declared {
    words: BTreeSet<String>,
    /// By struct: the words in its definition.
    bodies: BTreeMap<String, BTreeSet<String>>,
}

impl Declared {
    fn new(preprocessed: &str) -> Self {
        // Structs end in the first column.
        let bodies = preprocessed.split("\nstruct ").skip(1).filter_map(|item| {
            let (name, body) = item.split_once(" {")?;
            Some((name.to_owned(), words(body.split_once("\n};")?.0)))
        });
        Self { words: words(preprocessed), bodies: bodies.collect() }
    }

    fn word(&self, name: &str) -> bool {
        self.words.contains(name)
    }

    fn field(&self, r#struct: &str, field: &str) -> bool {
        self.bodies.get(r#struct).is_some_and(|body| body.contains(field))
    }
}

fn words(text: &str) -> BTreeSet<String> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').map(String::from).collect()
}

struct Compiler {
    command: String,
    include: PathBuf,
}

impl Compiler {
    /// # Errors
    /// Why there is nothing to compare with.
    fn find() -> Result<Self, String> {
        let asked = std::env::var_os("POLYRAIL_FABRIC_HEADERS").map(PathBuf::from);
        let include = asked.clone().unwrap_or_else(|| "/usr/include".into());
        if let Some(missing) = HEADERS.iter().map(|h| include.join("rdma").join(h)).find(|h| !h.is_file()) {
            // Who names a directory wants the comparison.
            assert!(asked.is_none(), "POLYRAIL_FABRIC_HEADERS: no {}", missing.display());
            return Err(format!("no libfabric headers (Debian: libfabric-dev): no {}", missing.display()));
        }
        let command = std::env::var("CC").unwrap_or_else(|_| "cc".into());
        match Command::new(&command).arg("--version").output() {
            Ok(_) => Ok(Self { command, include }),
            Err(error) => Err(format!("no C compiler: {command}: {error}")),
        }
    }

    fn declared(&self) -> Declared {
        Declared::new(&self.with_source(&includes(), &["-E", "-P", "-dD"], "-"))
    }

    /// Compiles and runs a program; what it printed, by name.
    fn run(&self, program: &str) -> BTreeMap<String, u64> {
        let binary = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("layout-{}", std::process::id()));
        self.with_source(program, &[], binary.to_str().expect("a path in UTF-8"));
        let printed = Command::new(&binary).output().expect("the program runs").stdout;
        std::fs::remove_file(&binary).expect("the program is removed");
        let printed = String::from_utf8(printed).expect("the program prints ASCII");
        printed
            .lines()
            .map(|line| line.split_once('=').expect("a name and a value"))
            .map(|(name, value)| (name.to_owned(), value.parse().expect("a number")))
            .collect()
    }

    /// Runs the compiler on a source text; what it printed.
    fn with_source(&self, text: &str, options: &[&str], output: &str) -> String {
        let mut path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("layout-{}", std::process::id()));
        path.set_extension("c");
        std::fs::write(&path, text).expect("the source is written");
        let mut command = Command::new(&self.command);
        command.arg("-w").args(options).arg("-I").arg(&self.include).arg(&path).args(["-o", output]);
        let result = command.output().expect("the compiler runs");
        let errors = String::from_utf8_lossy(&result.stderr);
        assert!(result.status.success(), "{command:?}:\n{errors}");
        std::fs::remove_file(&path).expect("the source is removed");
        String::from_utf8_lossy(&result.stdout).into_owned()
    }
}
