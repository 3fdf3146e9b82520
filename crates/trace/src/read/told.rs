//! What recorders tell, in words for the user.

use polyrail_core::trace::note;

/// Why the kernel did not record a program that preloading does not see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kernel {
    /// It did.
    Recorded,
    /// It does only for root.
    NeedsRights,
    /// It was not asked to, or could not.
    LeftOut,
    /// It was, and has not.
    Missed,
}

/// A program that preloading does not see: why, how often it was run, and whether the kernel recorded it.
pub(super) fn unseen(reason: u32, path: &str, times: u32, kernel: Kernel) -> String {
    use note::unseen;
    let why = match reason {
        unseen::STATIC => "it is linked without the dynamic loader",
        unseen::PRIVILEGED => "it runs with another user's rights",
        unseen::USER => "it runs as another user than the command, who may not use its session",
        unseen::FOREIGN => "it is of another architecture than the recorder",
        _ => "of an unknown kind",
    };
    if reason == unseen::SANDBOX {
        return format!(
            "{path} filters its system calls (seccomp): threads and sockets that it began after that were not recorded"
        );
    }
    if reason == unseen::IO_URING {
        return format!(
            "{path} uses io_uring: what it does by that with sockets is no call, and was not recorded"
        );
    }
    let times = if times == 1 { String::new() } else { format!(", {times} times") };
    let how = match kernel {
        Kernel::Recorded => "by the kernel: times are longer, and what vectors hold is not known",
        Kernel::Missed => "not at all",
        _ if reason == unseen::USER => "not at all",
        Kernel::NeedsRights => "not at all (as root, the kernel may record it)",
        Kernel::LeftOut => {
            "not at all (where kernel events can be had, as root and without --no-kernel, the kernel may record it)"
        }
    };
    format!("{path} was run{times} and {why}: its calls were recorded {how}")
}
