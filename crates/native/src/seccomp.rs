//! System calls of a program that its supervisor answers in its stead: `seccomp(2)`'s user notification. Those that are of interest stop in
//! the kernel until the supervisor says what came of them, or that they are to be carried out as they are; all others go by a filter of a
//! few instructions. The program needs no privilege, and whatever it starts is under the same filter.
//!
//! All unsafe code of it stands in this file.

use crate::ptrace::ARCHITECTURE;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// What becomes of a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The supervisor is told.
    Tell(i64),
    /// It fails with this error where this argument has one of these bits.
    Fail {
        /// Its number.
        call: i64,
        /// Which argument, from 0.
        argument: u32,
        /// Bits of its lower half.
        bits: u32,
        /// The error's number.
        error: i32,
    },
}

/// A call that waits for its answer.
#[derive(Clone, Copy, Debug)]
pub struct Notice {
    /// Its name among those that wait.
    pub id: u64,
    /// The thread that makes it.
    pub thread: u32,
    /// Its number.
    pub call: i64,
    /// Its arguments.
    pub arguments: [u64; 6],
}

/// What a call that waits is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The kernel carries it out as if nobody had asked.
    Continue,
    /// This came of it.
    Result(i64),
    /// It fails with this error.
    Error(i32),
}

/// Where the kernel shows filters a call's number, its architecture, and its arguments: `struct seccomp_data`.
const AT_CALL: u32 = 0;
const AT_ARCHITECTURE: u32 = 4;
const AT_ARGUMENTS: u32 = 16;

const fn op(code: u32, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt, jf, k }
}

const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
const EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
const ANY_BIT: u32 = libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K;
const RETURN: u32 = libc::BPF_RET | libc::BPF_K;

/// The filter of these rules. Calls of another architecture (32-bit programs) are carried out as they are.
fn filter(rules: &[Rule]) -> Vec<libc::sock_filter> {
    let allow = op(RETURN, libc::SECCOMP_RET_ALLOW, 0, 0);
    let mut all =
        vec![op(LOAD, AT_ARCHITECTURE, 0, 0), op(EQUAL, ARCHITECTURE, 1, 0), allow, op(LOAD, AT_CALL, 0, 0)];
    for rule in rules {
        match *rule {
            Rule::Tell(call) => {
                all.push(op(EQUAL, call as u32, 0, 1));
                all.push(op(RETURN, libc::SECCOMP_RET_USER_NOTIF, 0, 0));
            }
            Rule::Fail { call, argument, bits, error } => {
                all.push(op(EQUAL, call as u32, 0, 4));
                // the lower half of a little-endian argument
                all.push(op(LOAD, AT_ARGUMENTS + 8 * argument, 0, 0));
                all.push(op(ANY_BIT, bits, 0, 1));
                all.push(op(RETURN, libc::SECCOMP_RET_ERRNO | error as u32, 0, 0));
                all.push(allow);
            }
        }
    }
    all.push(allow);
    all
}

/// Puts this thread, and all that comes of it, under a filter; the descriptor by which its calls are answered. Makes system calls alone, so that it can
/// run between fork and exec.
fn install(filter: &[libc::sock_filter]) -> io::Result<OwnedFd> {
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    let set = || {
        let what = libc::SECCOMP_SET_MODE_FILTER;
        // SAFETY: the program and its instructions live through the call, which reads them
        let got = unsafe { libc::syscall(libc::SYS_seccomp, what, flags, &raw const program) };
        match RawFd::try_from(got) {
            // SAFETY: the kernel has just opened it for this process
            Ok(fd @ 0..) => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
            _ => Err(io::Error::last_os_error()),
        }
    };
    match set() {
        Err(why) if why.raw_os_error() == Some(libc::EACCES) => {
            // who may not filter what others would run with more rights gives up those
            // SAFETY: takes numbers alone
            if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
                return Err(io::Error::last_os_error());
            }
            set()
        }
        other => other,
    }
}

/// The descriptor by which calls are answered.
#[derive(Debug)]
pub struct Listener {
    fd: OwnedFd,
    /// A call that was taken before anybody asked.
    first: Mutex<Option<Notice>>,
}

/// By a system call of its own, which no library between this and the kernel sees: one that records calls makes others for each, which nobody would answer before the
/// descriptor is there.
fn pass(socket: BorrowedFd<'_>, fd: BorrowedFd<'_>) -> io::Result<()> {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut room);
    let fds = [fd];
    control.push(SendAncillaryMessage::ScmRights(&fds));
    sendmsg(socket, &[IoSlice::new(&[0])], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

fn taken(socket: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut room);
    let (mut byte, flags) = ([0], RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT);
    recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, flags)?;
    let mut fds = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    fds.next().and_then(|mut fds| fds.next()).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Waits for one of two; what there is of each.
fn first_of(one: BorrowedFd<'_>, other: BorrowedFd<'_>) -> io::Result<[PollFlags; 2]> {
    let mut both = [one, other].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
    loop {
        match poll(&mut both, None) {
            Ok(_) => return Ok([both[0].revents(), both[1].revents()]),
            Err(Errno::INTR) => {}
            Err(why) => return Err(why.into()),
        }
    }
}

/// Takes the descriptor from who is being started, and has the kernel carry out his calls as long as he has not become the program: libraries between this and the kernel may make
/// some, and who starts him waits for him. Until `ended`, or he has become it. None: he has not sent the descriptor.
fn answer_beginning(
    ours: &UnixStream,
    theirs: &Mutex<Option<OwnedFd>>,
    ended: BorrowedFd<'_>,
) -> io::Result<Option<Listener>> {
    first_of(ours.as_fd(), ended)?;
    let fd = match taken(ours.as_fd()) {
        Err(why) if why.kind() == io::ErrorKind::WouldBlock => return Ok(None),
        fd => fd?,
    };
    // he alone has this end from now on, until he becomes the program
    *theirs.lock().unwrap_or_else(PoisonError::into_inner) = None;
    let mut listener = Listener { fd, first: Mutex::new(None) };
    loop {
        let [calls, end] = first_of(listener.fd.as_fd(), ended)?;
        if !calls.contains(PollFlags::IN) {
            break;
        }
        let Some(notice) = listener.received()? else { continue };
        if end.is_empty() && !has_hung_up(ours)? {
            listener.answer(&notice, Verdict::Continue);
        } else {
            listener.first = Mutex::new(Some(notice));
            break;
        }
    }
    Ok(Some(listener))
}

fn has_hung_up(socket: &UnixStream) -> io::Result<bool> {
    let mut one = [PollFd::new(socket, PollFlags::IN)];
    loop {
        match poll(&mut one, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
            Ok(_) => return Ok(!one[0].revents().is_empty()),
            Err(Errno::INTR) => {}
            Err(why) => return Err(why.into()),
        }
    }
}

/// The descriptor of this number that the program which became this one left open for it, and that programs which this one starts do not get. Once
/// in a process, before anything else is opened.
///
/// # Errors
/// There is none, it is one of the standard streams, or this was asked before.
pub fn inherited(fd: RawFd) -> io::Result<OwnedFd> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    if fd <= libc::STDERR_FILENO || TAKEN.swap(true, Ordering::Relaxed) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: a plain call, which fails where there is no such descriptor
    if unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it is open, nobody in this process opened it, and it is taken once
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Starts a program under these rules, which do not tell of `sendmsg`. Nobody else in this process starts programs meanwhile: what he starts would count as this one's
/// beginning, until it is a program itself.
///
/// # Errors
/// It cannot be started, or the kernel lets nobody be filtered so: `ENOSYS` and `EINVAL` before Linux 5.19, `EBUSY` where somebody answers its calls
/// already.
pub fn spawn(command: &mut Command, rules: &[Rule]) -> io::Result<(Child, Listener)> {
    let filter = filter(rules);
    let (ours, theirs) = UnixStream::pair()?;
    let (ended, end) = UnixStream::pair()?;
    let number = theirs.as_raw_fd();
    let theirs = Mutex::new(Some(OwnedFd::from(theirs)));
    let begin = move || {
        // nobody would answer its calls any more
        // SAFETY: a plain call
        if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let listener = install(&filter)?;
        // SAFETY: it was open when this process was made, and nothing has closed it here
        pass(unsafe { BorrowedFd::borrow_raw(number) }, listener.as_fd())
    };
    // SAFETY: what runs between fork and exec makes system calls alone; it closes a descriptor, and allocates nothing
    unsafe { command.pre_exec(begin) };
    std::thread::scope(|scope| {
        let answers = std::thread::Builder::new()
            .spawn_scoped(scope, || answer_beginning(&ours, &theirs, ended.as_fd()))?;
        // by this thread, whose end ends the program
        let child = command.spawn();
        drop(end);
        let listener =
            answers.join().unwrap_or_else(|_| Err(io::Error::other("who answers first calls has ended")));
        let mut child = child?;
        match listener.and_then(|listener| listener.ok_or(io::ErrorKind::InvalidData.into())) {
            Ok(listener) => Ok((child, listener)),
            Err(why) => {
                // nobody answers its calls
                let _ = child.kill();
                let _ = child.wait();
                Err(why)
            }
        }
    })
}

/// Whether programs can be started so here: tries it with one that does nothing.
///
/// # Errors
/// As [`spawn`].
pub fn try_out() -> io::Result<()> {
    let mut trial = Command::new("true");
    trial.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let (mut child, listener) = spawn(&mut trial, &[Rule::Tell(libc::SYS_connect)])?;
    // older kernels know that nobody is left only when it was waited for
    let answers = std::thread::spawn(move || {
        while let Ok(Some(notice)) = listener.next() {
            listener.answer(&notice, Verdict::Continue);
        }
    });
    child.wait()?;
    answers.join().map_err(|_| io::Error::other("the trial's answers ended early"))
}

fn ioctl<T>(fd: &OwnedFd, request: libc::Ioctl, room: &mut T) -> io::Result<()> {
    // SAFETY: each request here is made with the structure that its number says the size of
    match unsafe { libc::ioctl(fd.as_raw_fd(), request, std::ptr::from_mut(room)) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

const RECEIVE: libc::Ioctl = libc::_IOWR::<libc::seccomp_notif>(b'!' as u32, 0);
const SEND: libc::Ioctl = libc::_IOWR::<libc::seccomp_notif_resp>(b'!' as u32, 1);
const IS_VALID: libc::Ioctl = libc::_IOW::<u64>(b'!' as u32, 2);

impl Listener {
    /// The next call that waits; waits for one. None: nobody is under the filter any more.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn next(&self) -> io::Result<Option<Notice>> {
        if let Some(first) = self.first.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Ok(Some(first));
        }
        loop {
            let mut wait = libc::pollfd { fd: self.fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: one structure, which lives through the call
            if unsafe { libc::poll(&raw mut wait, 1, -1) } < 0 {
                match io::Error::last_os_error() {
                    why if why.kind() == io::ErrorKind::Interrupted => continue,
                    why => return Err(why),
                }
            }
            if wait.revents & libc::POLLIN == 0 {
                return Ok(None);
            }
            if let Some(notice) = self.received()? {
                return Ok(Some(notice));
            }
        }
    }

    /// The call that waits; none: who made it was killed meanwhile.
    fn received(&self) -> io::Result<Option<Notice>> {
        // SAFETY: zeros are what the kernel wants there
        let mut notice: libc::seccomp_notif = unsafe { MaybeUninit::zeroed().assume_init() };
        match ioctl(&self.fd, RECEIVE, &mut notice) {
            Ok(()) => Ok(Some(Notice {
                id: notice.id,
                thread: notice.pid,
                call: notice.data.nr.into(),
                arguments: notice.data.args,
            })),
            Err(why) if matches!(why.raw_os_error(), Some(libc::ENOENT | libc::EINTR)) => Ok(None),
            Err(why) => Err(why),
        }
    }

    /// Whether a call still waits. While it does its thread's number is nobody else's: what was found by that before this was asked was its.
    pub fn waits(&self, notice: &Notice) -> bool {
        let mut id = notice.id;
        ioctl(&self.fd, IS_VALID, &mut id).is_ok()
    }

    /// Tells a call what came of it. False: it does not wait any more.
    pub fn answer(&self, notice: &Notice, verdict: Verdict) -> bool {
        let (val, error, flags) = match verdict {
            Verdict::Continue => (0, 0, libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32),
            Verdict::Result(value) => (value, 0, 0),
            Verdict::Error(number) => (0, -number, 0),
        };
        let mut response = libc::seccomp_notif_resp { id: notice.id, val, error, flags };
        ioctl(&self.fd, SEND, &mut response).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One test starts programs at a time.
    static ALONE: Mutex<()> = Mutex::new(());

    #[test]
    fn calls_are_answered_carried_out_and_refused() {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(why) = try_out() {
            return polyrail_testing::lacking(format_args!("system calls that are shown to others: {why}"));
        }
        let rules = [
            Rule::Tell(libc::SYS_getppid),
            Rule::Tell(libc::SYS_umask),
            Rule::Fail { call: libc::SYS_access, argument: 1, bits: 4, error: libc::EPROTO },
        ];
        let mut command = Command::new("python3");
        let script = "import os\nassert os.getppid() == 4711\nassert os.umask(0o22) == os.umask(0o22) == 0o22\n\
                      import ctypes\nc = ctypes.CDLL(None, use_errno=True)\n\
                      assert c.syscall(int(os.environ['ACCESS']), b'/', 0) == 0\n\
                      assert c.syscall(int(os.environ['ACCESS']), b'/', 4) == -1 and ctypes.get_errno() == 71\n";
        command.args(["-c", script]).env("ACCESS", libc::SYS_access.to_string());
        // SAFETY: one system call that cannot fail
        unsafe {
            command.pre_exec(|| {
                libc::umask(0o22);
                Ok(())
            });
        }
        let (mut child, listener) = spawn(&mut command, &rules).unwrap();
        // older kernels know that nobody is left only when it was waited for
        let waits = std::thread::spawn(move || child.wait().unwrap().success());
        let mut told = Vec::new();
        while let Some(notice) = listener.next().unwrap() {
            assert!(listener.waits(&notice));
            let verdict =
                if notice.call == libc::SYS_getppid { Verdict::Result(4711) } else { Verdict::Continue };
            assert!(listener.answer(&notice, verdict));
            assert!(!listener.waits(&notice));
            told.push(notice.call);
            assert!(told.len() < 10_000);
        }
        assert!(waits.join().unwrap());
        let times = |call| told.iter().filter(|told| **told == call).count();
        assert!(times(libc::SYS_getppid) > 0 && times(libc::SYS_umask) == 2, "{told:?}");
    }

    #[test]
    fn calls_before_there_is_a_program_are_nobodys() {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(why) = try_out() {
            return polyrail_testing::lacking(format_args!("system calls that are shown to others: {why}"));
        }
        // made where it is started, once the descriptor is sent
        let rules = [libc::SYS_close, libc::SYS_execve, libc::SYS_getppid].map(Rule::Tell);
        let mut command = Command::new("sh");
        command.args(["-c", "exit 3"]);
        let (mut child, listener) = spawn(&mut command, &rules).unwrap();
        let waits = std::thread::spawn(move || child.wait().unwrap().code());
        let mut told = 0;
        while let Some(notice) = listener.next().unwrap() {
            assert_ne!(notice.call, libc::SYS_execve, "it was not the program yet");
            told += u32::from(notice.call == libc::SYS_getppid);
            assert!(listener.answer(&notice, Verdict::Continue));
        }
        assert_eq!(waits.join().unwrap(), Some(3));
        assert!(told > 0, "a shell asks for its parent");
    }

    #[test]
    fn a_program_that_is_not_there_is_told() {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let why = spawn(&mut Command::new("/there/is/none"), &[]).unwrap_err();
        assert_eq!(why.kind(), io::ErrorKind::NotFound);
        // what tells of it is answered, too
        if try_out().is_ok() {
            let rules =
                [libc::SYS_close, libc::SYS_write, libc::SYS_sendto, libc::SYS_exit_group].map(Rule::Tell);
            let why = spawn(&mut Command::new("/there/is/none"), &rules).unwrap_err();
            assert_eq!(why.kind(), io::ErrorKind::NotFound);
        }
    }
}
