//! Whether this process has the companion that `polyrail run` meant it to have (`crates/mpi`). Ranks with it and ranks without it do not take
//! part in the same collective operations: they would wait for each other for ever.

use std::env;
use std::ffi::OsString;
use std::fs;

const FILE: &str = "libpolyrail_mpi.so";

/// What is wrong, if the loader was told of it and did not load it.
pub fn missing() -> Option<String> {
    told(env::var_os("LD_PRELOAD"), || fs::read_to_string("/proc/self/maps").unwrap_or_default())
}

fn told(preload: Option<OsString>, maps: impl FnOnce() -> String) -> Option<String> {
    let preload = preload?.into_string().ok()?;
    let path = preload.split([':', ' ']).find(|path| path.rsplit('/').next() == Some(FILE))?;
    let is_here = maps().lines().any(|line| line.rsplit('/').next() == Some(FILE));
    (!is_here).then(|| {
        format!(
            "{path} was not loaded, and other ranks would wait for this one: is it installed on this host, as it is on the others? \
             polyrail run --no-companion does without"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "7f-80 r-xp 00000000 08:01 7 /opt/lib/libpolyrail_mpi.so\n";

    #[test]
    fn who_was_to_have_it_and_has_not_is_told() {
        let says = |preload: &str, maps: &str| told(Some(preload.into()), || maps.into());
        assert!(told(None, || panic!("nobody asked for it")).is_none());
        assert!(says("/opt/lib/other.so", "").is_none());
        assert!(says("/a.so:/opt/lib/libpolyrail_mpi.so", MAPS).is_none());
        let why =
            says("/a.so:/opt/lib/libpolyrail_mpi.so", "7f-80 r-xp 0 08:01 7 /opt/lib/xlibpolyrail_mpi.so\n")
                .unwrap();
        assert!(why.starts_with("/opt/lib/libpolyrail_mpi.so was not loaded"), "{why}");
    }
}
