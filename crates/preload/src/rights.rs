//! Calls by which a process becomes another user. What the calling thread needs of shared memory it takes before: a server that is started
//! as root forks, gives up its rights, and only then makes its first call on a socket.

use std::ffi::c_int;

use libc::uid_t;

use crate::next::next;
use crate::recorder;

macro_rules! becoming {
    ($($name:ident($($argument:ident),*);)*) => {$(
        /// See its manual page; the calling thread has a ring from then on.
        ///
        /// # Safety
        /// As of the C function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name($($argument: uid_t),*) -> c_int {
            let next = next!($name: fn($(becoming!(@type $argument)),*) -> c_int);
            if recorder::on() && !recorder::borrowed() {
                recorder::flush();
            }
            // SAFETY: the program's own call
            unsafe { next($($argument),*) }
        }
    )*};
    (@type $argument:ident) => { uid_t };
}

becoming! {
    setuid(user);
    seteuid(user);
    setreuid(real, effective);
    setresuid(real, effective, saved);
}
