//! Whether this process has the companion that `polyrail run` meant it to have (`crates/mpi`). Ranks with it and ranks without it do not take
//! part in the same collective operations: they would wait for each other for ever.

use std::env;
use std::ffi::OsString;

/// What is wrong, if this process was to have it and has not.
pub fn missing() -> Option<String> {
    told(env::var_os("POLYRAIL_COMPANION"), || {
        // SAFETY: a C string; its object is only looked for
        unsafe { !libc::dlsym(libc::RTLD_DEFAULT, c"polyrail_companion".as_ptr()).is_null() }
    })
}

fn told(file: Option<OsString>, is_here: impl FnOnce() -> bool) -> Option<String> {
    let file = file.filter(|file| !file.is_empty())?;
    (!is_here()).then(|| {
        format!(
            "{} was not loaded, and other ranks would wait for this one: is it installed on this host, as it is on the others, and \
             does LD_PRELOAD reach the ranks? polyrail run --no-companion does without",
            file.display()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_to_have_it_and_has_not_is_told() {
        assert!(told(None, || panic!("nobody asked for it")).is_none());
        assert!(told(Some("".into()), || panic!("it is not wanted")).is_none());
        assert!(told(Some("/opt/lib/libpolyrail_mpi.so".into()), || true).is_none());
        let why = told(Some("/opt/lib/libpolyrail_mpi.so".into()), || false).unwrap();
        assert!(why.starts_with("/opt/lib/libpolyrail_mpi.so was not loaded"), "{why}");
        assert!(missing().is_none(), "this process was not to have it");
    }
}
