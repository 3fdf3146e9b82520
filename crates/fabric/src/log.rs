//! Libfabric's log, in this provider's name; and standard error, for what a user must hear of when nobody has asked for a log.

use std::fmt;
use std::io::Write as _;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::ffi::host::HostOf;

static HOST: OnceLock<HostOf> = OnceLock::new();

/// The hosting libfabric; none before it has called `fi_prov_ini`.
pub fn host() -> Option<&'static HostOf> {
    HOST.get()
}

/// Remembers the hosting libfabric. The first that is named stays.
pub fn set_host(host: HostOf) -> &'static HostOf {
    HOST.get_or_init(|| host)
}

/// Writes a line to standard error.
pub fn tell(line: fmt::Arguments<'_>) {
    let line = format!("polyrail: {line}\n");
    // in one piece, as others write there too; where nobody reads it there is nothing to be done
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// How long a launcher is given to carry a line, and between two that are given it.
const CARRIED: Duration = Duration::from_millis(100);
const AGAIN: Duration = Duration::from_secs(1);

/// Writes a line to standard error of what the program may end by at once. A launcher carries what ranks write from other hosts (MPICH's Hydra does), and of a job that is aborted it drops what it had not carried yet: it is given the time.
pub fn tell_before_the_end(line: fmt::Arguments<'_>) {
    static LAST: Mutex<Option<Instant>> = Mutex::new(None);
    tell(line);
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if last.is_none_or(|last| last.elapsed() > AGAIN) {
        sleep(CARRIED);
        *last = Some(Instant::now());
    }
}

/// Writes a line to standard error, unless it has been told before.
pub fn tell_once(line: &impl fmt::Display) {
    once(line, Duration::ZERO);
}

/// As [`tell_before_the_end`], unless it has been told before: what fails for one endpoint fails for the next.
pub fn tell_once_before_the_end(line: &impl fmt::Display) {
    once(line, CARRIED);
}

fn once(line: &impl fmt::Display, carried: Duration) {
    static TOLD: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let line = line.to_string();
    // kept meanwhile: another thread that has the same to tell may end the program, and waits, too
    let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
    if !told.contains(&line) {
        tell(format_args!("{line}"));
        sleep(carried);
        told.push(line);
    }
}

/// Writes to libfabric's log: level, subsystem, then as `format!`.
macro_rules! log {
    ($level:ident, $subsys:ident, $($message:tt)*) => {
        if let Some(host) = $crate::log::host()
            && host.log_enabled($crate::ffi::$level, $crate::ffi::$subsys)
        {
            const WHERE: &std::ffi::CStr = match std::ffi::CStr::from_bytes_with_nul(concat!(module_path!(), "\0").as_bytes()) {
                Ok(path) => path,
                Err(_) => c"polyrail",
            };
            host.log($crate::ffi::$level, $crate::ffi::$subsys, WHERE, line!(), format_args!($($message)*));
        }
    };
}
pub(crate) use log;
