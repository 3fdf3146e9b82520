//! Whether a program can be run by `polyrail omp`, from what its file and its libraries say.

mod cautions;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fmt::Write;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use object::{Architecture, Object, ObjectSymbol};
use polyrail_omp::code;

use crate::run::detect;

/// Runtimes that ours takes the place of, by the names that programs ask for.
const RUNTIMES: [(&str, &str); 4] = [
    ("libgomp.so.1", "GCC's (libgomp)"),
    ("libomp.so.5", "LLVM's (libomp)"),
    ("libomp.so", "LLVM's (libomp)"),
    ("libiomp5.so", "LLVM's (libiomp5)"),
];

/// What only a runtime defines.
const HALLMARKS: [&str; 2] = ["GOMP_parallel", "__kmpc_fork_call"];

/// Beginnings of names of entry points.
const PREFIXES: [&str; 8] = ["GOMP_", "GOACC_", "__kmpc_", "omp_", "kmp_", "kmpc_", "__tgt_", "acc_"];

/// What becomes of an entry point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    Works,
    Refused,
    Unknown,
}

/// What was found.
#[derive(Debug)]
pub struct Report {
    program: PathBuf,
    runtimes: Vec<String>,
    /// Name of the file that asks, of the entry point; what becomes of it, and what it is.
    entries: BTreeMap<(String, String), (State, String)>,
    refused: Vec<String>,
    /// What it depends on, how the program uses them: files, functions, and what becomes of them.
    cautions: Vec<String>,
    /// What people should know although the program can be run.
    pub notes: Vec<String>,
}

impl Report {
    /// Whether all that the program uses works.
    pub fn is_fine(&self) -> bool {
        self.refused.is_empty() && self.entries.values().all(|(state, _)| *state == State::Works)
    }

    /// Why it cannot even be started, a line each.
    pub fn obstacles(&self) -> Option<String> {
        let lines: String = self.refused.iter().map(|why| format!("\n  {why}")).collect();
        (!lines.is_empty())
            .then(|| format!("{} cannot be run over several processes:{lines}", self.program.display()))
    }

    /// What ends the run when it is reached, a line each.
    pub fn warnings(&self) -> Vec<String> {
        let warning = |((file, name), (state, about)): (&(String, String), &(State, String))| match state {
            State::Works => None,
            State::Refused => Some(format!("{file} uses {name}, which is not supported: {about}")),
            State::Unknown => Some(format!("{file} uses {name}, which polyrail omp does not know")),
        };
        self.entries.iter().filter_map(warning).collect()
    }

    /// All of it.
    pub fn text(&self) -> String {
        let mut text = format!("program   {}\n", self.program.display());
        if !self.runtimes.is_empty() {
            let _ = writeln!(text, "runtime   {}", self.runtimes.join(", "));
        }
        let width = self.entries.keys().map(|(_, name)| name.len()).max().unwrap_or(0);
        for ((file, name), (state, about)) in &self.entries {
            let state = match state {
                State::Works => "works",
                State::Refused => "refused",
                State::Unknown => "unknown",
            };
            let _ = writeln!(text, "  {state:<8}{name:<width$}  {about}  ({file})");
        }
        for note in &self.notes {
            let _ = writeln!(text, "note      {note}");
        }
        for warning in self.warnings() {
            let _ = writeln!(text, "warning   {warning}");
        }
        for caution in &self.cautions {
            let _ = writeln!(text, "caution   {caution}");
        }
        let verdict = match self.obstacles() {
            Some(obstacles) => obstacles,
            None if self.is_fine() && self.cautions.is_empty() => "can be run over several processes".into(),
            None if self.is_fine() => {
                "can be run over several processes; what it does by the functions above decides about the rest".into()
            }
            None => {
                "can be run over several processes as long as it does not come to what is warned of".into()
            }
        };
        text + &verdict + "\n"
    }
}

/// Looks at a program and the libraries that it loads. `table`: of entry points, `name<TAB>works|refused<TAB>what it is` a line.
///
/// # Errors
/// Its file cannot be read.
pub fn check(program: &OsStr, table: &str) -> Result<Report, String> {
    let path = detect::resolve(program)
        .ok_or_else(|| format!("{}: {}", program.display(), why_none(Path::new(program))))?;
    let data = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut report = Report {
        program: path.clone(),
        runtimes: Vec::new(),
        entries: BTreeMap::new(),
        refused: Vec::new(),
        cautions: Vec::new(),
        notes: Vec::new(),
    };
    if data.starts_with(b"#!") {
        report.refused.push("it is a script: name the compiled program".into());
        return Ok(report);
    }
    let Ok(file) = object::File::parse(&*data) else {
        report.refused.push("it is no compiled program".into());
        return Ok(report);
    };
    if file.architecture() != Architecture::X86_64 {
        report.refused.push(format!("it is for {:?}, and only x86-64 is supported", file.architecture()));
        return Ok(report);
    }
    if path.metadata().is_ok_and(|meta| meta.permissions().mode() & 0o6000 != 0) {
        report
            .refused
            .push("it is setuid or setgid: the system loads no other libraries into such programs".into());
    }
    let runtime_inside = defines_runtime(&file);
    if runtime_inside {
        report.refused.push(
            "its OpenMP runtime is linked into it: link it without -static-openmp or -static, with the runtime's shared library".into(),
        );
    }
    let Ok(libraries) = detect::libraries_of_program(&path) else {
        if !runtime_inside {
            report.refused.push("it is statically linked, so that nothing can be loaded into it".into());
        }
        return Ok(report);
    };
    let table: BTreeMap<&str, (State, &str)> = table.lines().filter_map(line).collect();
    report.add(&path, &file, &table);
    report.look_through(&path.display().to_string(), &data);
    for (name, library) in libraries {
        report.look_at(&name, library.as_deref(), &table);
    }
    report.runtimes.sort();
    report.runtimes.dedup();
    if report.runtimes.is_empty() && report.entries.is_empty() && report.refused.is_empty() {
        report.notes.push(format!(
            "{} uses no OpenMP as far as one can see: it would run on rank 0 alone",
            path.display()
        ));
    }
    Ok(report)
}

/// Why what a word names is no program.
fn why_none(path: &Path) -> &'static str {
    match path.metadata() {
        Ok(meta) if meta.is_dir() => "is a directory, not a program",
        Ok(meta) if meta.is_file() => "may not be run: chmod +x makes a program of it",
        Ok(_) => "is no file",
        Err(_) => "no such program, neither here nor on PATH",
    }
}

fn line(line: &str) -> Option<(&str, (State, &str))> {
    let mut fields = line.split('\t');
    let (name, state) = (fields.next()?, fields.next()?);
    let state = match state {
        "works" => State::Works,
        "refused" => State::Refused,
        _ => return None,
    };
    Some((name, (state, fields.next().unwrap_or_default())))
}

/// Whether a file has a runtime of its own.
fn defines_runtime(file: &object::File<'_>) -> bool {
    let mut symbols = file.symbols().chain(file.dynamic_symbols());
    symbols.any(|symbol| symbol.is_definition() && symbol.name().is_ok_and(|name| HALLMARKS.contains(&name)))
}

impl Report {
    fn look_at(&mut self, name: &str, library: Option<&Path>, table: &BTreeMap<&str, (State, &str)>) {
        if let Some((_, runtime)) = RUNTIMES.iter().find(|(known, _)| *known == name) {
            // ours comes in its place, whether it is installed or not
            self.runtimes.push((*runtime).into());
            return;
        }
        let Some(data) = library.and_then(|library| fs::read(library).ok()) else {
            self.refused.push(format!("it needs {name}, which the system does not find"));
            return;
        };
        let Ok(file) = object::File::parse(&*data) else { return };
        if defines_runtime(&file) {
            self.refused.push(format!("{name} is, or contains, an OpenMP runtime of its own"));
        } else {
            self.add(Path::new(name), &file, table);
            if !polyrail_omp::is_systems(name) {
                self.look_through(name, &data);
            }
        }
    }

    /// Code in which atomic instructions cannot be found.
    fn look_through(&mut self, name: &str, data: &[u8]) {
        if let Some(why) = code::find(data).and_then(|code| code.refusal()) {
            self.refused.push(format!("{name}: {why}"));
        }
    }

    /// The entry points that a file asks for.
    fn add(&mut self, path: &Path, file: &object::File<'_>, table: &BTreeMap<&str, (State, &str)>) {
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
        let is_entry = |symbol: &str| PREFIXES.iter().any(|prefix| symbol.starts_with(prefix));
        let asked = || file.dynamic_symbols().filter(|symbol| symbol.is_undefined());
        if !polyrail_omp::is_systems(&name) {
            let names: BTreeSet<&str> = asked().filter_map(|symbol| symbol.name().ok()).collect();
            self.cautions.extend(cautions::of(&names).map(|caution| format!("{name} uses {caution}")));
        }
        for symbol in asked().filter_map(|symbol| symbol.name().ok()).filter(|symbol| is_entry(symbol)) {
            // names may bear their version
            let symbol = symbol.split('@').next().unwrap_or(symbol);
            let (state, about) = table.get(symbol).copied().unwrap_or((State::Unknown, ""));
            self.entries.insert((name.clone().into_owned(), symbol.into()), (state, about.into()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use tempfile::TempDir;

    const TABLE: &str = "GOMP_parallel\tworks\tparallel\nomp_get_thread_num\tworks\tomp_get_thread_num()\n\
                         GOMP_barrier\trefused\tbarrier\n";

    /// Builds a C program by `cc`; `None` where it cannot (no OpenMP library for it).
    fn build(dir: &TempDir, source: &str, options: &[&str]) -> Option<PathBuf> {
        let (file, program) = (dir.path().join("a.c"), dir.path().join("a"));
        fs::write(&file, source).unwrap();
        let built = Command::new("cc").arg(&file).arg("-o").arg(&program).args(options).output().unwrap();
        built.status.success().then_some(program)
    }

    const BARRIER: &str = "int main(void) {\n#pragma omp parallel\n{\n#pragma omp barrier\n}\n}";
    const PARALLEL: &str = "int x; int main(void) {\n#pragma omp parallel\n{ x = 1; }\n}";

    fn report(program: &Path) -> Report {
        check(program.as_os_str(), TABLE).unwrap()
    }

    #[test]
    fn entry_points_are_told_with_what_becomes_of_them() {
        let dir = tempfile::tempdir().unwrap();
        let program = build(&dir, PARALLEL, &["-fopenmp"]).unwrap();
        let found = report(&program);
        assert!(found.is_fine(), "{}", found.text());
        assert_eq!(found.runtimes, ["GCC's (libgomp)"]);
        assert!(found.text().contains("works   GOMP_parallel  parallel  (a)"), "{}", found.text());

        let program = build(&dir, BARRIER, &["-fopenmp"]).unwrap();
        let found = report(&program);
        assert!(
            !found.is_fine() && found.text().contains("a uses GOMP_barrier, which is not supported: barrier"),
            "{}",
            found.text()
        );
        let found = check(program.as_os_str(), "GOMP_parallel\tworks\tparallel").unwrap();
        assert!(found.text().contains("GOMP_barrier, which polyrail omp does not know"), "{}", found.text());
    }

    #[test]
    fn libraries_are_looked_at_too() {
        let dir = tempfile::tempdir().unwrap();
        let library = format!("-Wl,-rpath,{}", dir.path().display());
        fs::write(dir.path().join("l.c"), BARRIER.replace("main", "work")).unwrap();
        let built = Command::new("cc")
            .args(["-shared", "-fPIC", "-fopenmp", "-o"])
            .arg(dir.path().join("libl.so"))
            .arg(dir.path().join("l.c"))
            .status();
        assert!(built.unwrap().success());
        let link = format!("-L{}", dir.path().display());
        let program =
            build(&dir, "int work(void); int main(void) { work(); }", &[&link, "-ll", &library]).unwrap();
        let found = report(&program);
        assert!(found.warnings()[0].starts_with("libl.so uses GOMP_barrier"), "{}", found.text());
        fs::remove_file(dir.path().join("libl.so")).unwrap();
        assert!(
            report(&program).obstacles().unwrap().contains("needs libl.so, which the system does not find")
        );
    }

    #[test]
    fn what_cannot_be_run_is_refused_with_the_reason() {
        let dir = tempfile::tempdir().unwrap();
        let why = |program: &Path| report(program).obstacles().unwrap();
        if let Some(program) = build(&dir, PARALLEL, &["-fopenmp", "-static"]) {
            assert!(why(&program).contains("runtime is linked into it"), "{}", why(&program));
        }
        if let Some(program) = build(&dir, "int main(void) {}", &["-static"]) {
            assert!(why(&program).contains("statically linked"), "{}", why(&program));
        }
        let program = build(&dir, PARALLEL, &["-fopenmp"]).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
        assert!(why(&program).contains("setuid"), "{}", why(&program));
        let mut data = fs::read(&program).unwrap();
        data[18] = 183; // e_machine: AArch64
        fs::remove_file(&program).unwrap();
        fs::write(&program, data).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(why(&program).contains("only x86-64"), "{}", why(&program));
        fs::write(&program, "#!/bin/sh\n").unwrap();
        assert!(why(&program).contains("script"));
        assert!(check(OsStr::new("/nowhere/a"), TABLE).is_err());
        assert!(check(dir.path().as_os_str(), TABLE).unwrap_err().contains("is a directory"));
        fs::set_permissions(&program, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(check(program.as_os_str(), TABLE).unwrap_err().contains("chmod +x"));
    }

    #[test]
    fn what_depends_on_where_it_is_called_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let source = format!("#include <stdlib.h>\n{}", PARALLEL.replace("{ x = 1; }", "{ x = rand(); }"));
        let program = build(&dir, &source, &["-fopenmp"]).unwrap();
        let found = report(&program);
        assert!(
            found.is_fine() && found.text().contains("caution   a uses rand: in a parallel region"),
            "{}",
            found.text()
        );
    }

    #[test]
    fn code_that_cannot_be_told_from_data_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let between = |what: &str| {
            let usual = r".rept 12\n mov %rsi, %rax\n .endr\n";
            format!(
                "__asm__(\".text\\n .byte 6, 7\\n {usual} {what} {usual} ret\\n .byte 6, 7\\n\"); {PARALLEL}"
            )
        };
        let program = build(&dir, &between(r"lock incl (%rdi)\n"), &["-fopenmp"]).unwrap();
        let why = report(&program).obstacles().unwrap();
        assert!(why.contains("/a: at 0x") && why.contains(".cfi_startproc"), "{why}");
        let program = build(&dir, &between(""), &["-fopenmp"]).unwrap();
        assert!(report(&program).is_fine(), "{}", report(&program).text());
    }

    #[test]
    fn a_program_without_openmp_is_noted() {
        let dir = tempfile::tempdir().unwrap();
        let program = build(&dir, "int main(void) {}", &[]).unwrap();
        let found = report(&program);
        assert!(found.is_fine() && found.notes[0].contains("uses no OpenMP"), "{}", found.text());
    }
}
