//! Entry points that are there to say that they cannot be right: those that `entries.txt` calls refused, so that no name falls through to another runtime.

use crate::sys;
/// An entry point for each name.
macro_rules! stubs {
    ($($name:ident)*) => {$(
        /// Refuses.
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> ! {
            refuse(stringify!($name))
        }
    )*};
}
include!(concat!(env!("OUT_DIR"), "/refused.rs"));

/// Ends the run because an entry point that was called cannot be right on several machines, or is not known.
fn refuse(name: &str) -> ! {
    let why = REASONS.iter().find(|(known, _)| *known == name).map_or("is not supported", |(_, why)| why);
    sys::fail(format_args!("{name}: {why}"))
}
