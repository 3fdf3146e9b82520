//! Entry points that are there to say that they cannot be right: those that `entries.txt` calls refused, so that no name falls through to another runtime.

/// An entry point for each name.
macro_rules! stubs {
    ($($name:ident)*) => {$(
        /// Refuses.
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> ! {
            crate::sys::refuse(stringify!($name))
        }
    )*};
}
include!(concat!(env!("OUT_DIR"), "/refused.rs"));

/// What is to be told of entry point `name`.
pub fn why(name: &str) -> &'static str {
    REASONS.iter().find(|(known, _)| *known == name).map_or("is not supported", |(_, why)| why)
}
