//! What was found in a large program's code is kept for its next run, and is believed of just that file.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::ways::{COMPILERS, directory, mpiexec, over, prepare, run};

/// A program with much code, and one function that needs a breakpoint on ranks above 0.
fn source(adds: u32) -> String {
    format!(
        "#include <stdio.h>
void much(void) {{ __asm__ volatile(\".rept 100000\\n nop\\n .endr\"); }}
long sum; void add(long by) {{ __atomic_fetch_add(&sum, by, __ATOMIC_RELAXED); }}
int main(void) {{
#pragma omp parallel for schedule(static, 1)
    for (int i = 0; i < 1000; i++) add({adds});
    printf(\"%ld\\n\", sum);
}}"
    )
}

/// The one entry that there is, and when it was written.
fn entry(cache: &Path) -> Option<(PathBuf, Vec<u8>, [i64; 2])> {
    let mut found = fs::read_dir(cache.join("polyrail/code")).ok()?.map(|one| one.unwrap().path());
    let path = found.next()?;
    assert_eq!(found.next(), None, "one program, one entry, and nothing half written");
    let state = fs::metadata(&path).unwrap();
    Some((path.clone(), fs::read(path).unwrap(), [state.mtime(), state.mtime_nsec()]))
}

#[test]
fn what_was_found_is_kept() {
    if !mpiexec(2).exists() {
        return polyrail_testing::lacking("an MPI in .venv (make setup), for runs over several ranks");
    }
    prepare();
    let place = directory().join("large");
    let cache = place.join("cache");
    let _ = fs::remove_dir_all(&place);
    fs::create_dir_all(&place).unwrap();
    let build = |adds: u32| {
        let (code, program) = (place.join("program.c"), place.join("program"));
        fs::write(&code, source(adds)).unwrap();
        let flags = ["-fno-inline".into()];
        COMPILERS[0].build(0, &flags, &code, &program, None).expect("gcc is there").unwrap()
    };
    let says = |program: &Path| {
        let mut command = over(2, program, 2);
        command.env("XDG_CACHE_HOME", &cache);
        let said = run(command);
        assert_eq!(said.errors, "");
        said.output
    };
    let program = build(1);
    assert_eq!((entry(&cache), says(&program).as_str()), (None, "1000\n"));
    let (path, first, written) = entry(&cache).expect("an entry");
    assert_eq!(says(&program), "1000\n");
    assert_eq!(entry(&cache), Some((path.clone(), first.clone(), written)), "it is read, and not made again");
    // damaged, and one that others may have written: made again
    let mut damaged = first.clone();
    *damaged.last_mut().unwrap() ^= 1;
    fs::write(&path, &damaged).unwrap();
    assert_eq!(says(&program), "1000\n");
    assert_eq!(entry(&cache).unwrap().1, first);
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
    let before = entry(&cache);
    assert_eq!(says(&program), "1000\n");
    let after = entry(&cache);
    assert_ne!(after, before);
    assert_eq!(after.unwrap().1, first);
    // another program in its place
    assert_eq!(says(&build(2)), "2000\n");
    // and nowhere to keep anything
    let mut command = over(2, &program, 2);
    command.env("XDG_CACHE_HOME", "/dev/null");
    assert_eq!(run(command).output, "2000\n");
}
