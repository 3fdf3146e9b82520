//! Which system call is which, on this architecture.

use std::collections::HashMap;

use polyrail_core::trace::{Call, Class};

use crate::kernel::calls::TABLE;

/// What [`TABLE`] calls them, where there is such a call.
const NUMBERS: &[(&str, libc::c_long)] = &[
    ("socket", libc::SYS_socket),
    ("bind", libc::SYS_bind),
    ("listen", libc::SYS_listen),
    ("connect", libc::SYS_connect),
    ("accept", libc::SYS_accept),
    ("accept4", libc::SYS_accept4),
    ("shutdown", libc::SYS_shutdown),
    ("close", libc::SYS_close),
    ("close_range", libc::SYS_close_range),
    ("dup", libc::SYS_dup),
    #[cfg(target_arch = "x86_64")]
    ("dup2", libc::SYS_dup2),
    ("dup3", libc::SYS_dup3),
    ("fcntl", libc::SYS_fcntl),
    ("sendto", libc::SYS_sendto),
    ("sendmsg", libc::SYS_sendmsg),
    ("sendmmsg", libc::SYS_sendmmsg),
    ("write", libc::SYS_write),
    ("writev", libc::SYS_writev),
    ("sendfile64", libc::SYS_sendfile),
    ("splice", libc::SYS_splice),
    ("recvfrom", libc::SYS_recvfrom),
    ("recvmsg", libc::SYS_recvmsg),
    ("recvmmsg", libc::SYS_recvmmsg),
    ("read", libc::SYS_read),
    ("readv", libc::SYS_readv),
    #[cfg(target_arch = "x86_64")]
    ("poll", libc::SYS_poll),
    ("ppoll", libc::SYS_ppoll),
    #[cfg(target_arch = "x86_64")]
    ("select", libc::SYS_select),
    ("pselect6", libc::SYS_pselect6),
    #[cfg(target_arch = "x86_64")]
    ("epoll_wait", libc::SYS_epoll_wait),
    ("epoll_pwait", libc::SYS_epoll_pwait),
    ("epoll_pwait2", libc::SYS_epoll_pwait2),
];

/// The place in [`TABLE`] of each system call that is there, by its number.
pub fn places() -> HashMap<u64, usize> {
    let place = |name: &str| TABLE.iter().position(|(known, ..)| *known == name);
    NUMBERS.iter().filter_map(|(name, number)| Some((*number as u64, place(name)?))).collect()
}

/// Those that may be begun again when they were interrupted before anything has come of them.
pub fn waiting() -> Vec<libc::c_long> {
    let waits = |name: &str| {
        TABLE.iter().any(|(known, call, _)| {
            let opens = matches!(call, Call::Accept | Call::Accept4);
            *known == name && (opens || matches!(call.class(), Class::Wait | Class::Send | Class::Receive))
        })
    };
    NUMBERS.iter().filter(|(name, _)| waits(name)).map(|(_, number)| *number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_call_has_its_number_and_connect_is_not_begun_again() {
        let places = places();
        assert_eq!(places.len(), NUMBERS.len(), "each number once");
        if cfg!(target_arch = "x86_64") {
            assert_eq!(places.len(), TABLE.len());
            assert_eq!(TABLE[places[&0]].1, Call::Read);
        }
        let waiting = waiting();
        assert!(waiting.contains(&libc::SYS_epoll_pwait) && waiting.contains(&libc::SYS_recvfrom));
        for number in [libc::SYS_connect, libc::SYS_close, libc::SYS_dup3] {
            assert!(!waiting.contains(&number));
        }
    }
}
