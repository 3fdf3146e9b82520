//! An endpoint with all that it needs, and the calls of C's inline functions.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::time::{Duration, Instant};

use libc::iovec;
use polyrail_fi::ffi::*;

use crate::host::{Host, Info};

/// How long anything may take.
pub const TIME: Duration = Duration::from_secs(20);

/// What a node is to be like; the hints are changed by `hints`.
#[derive(Clone, Copy)]
pub struct Want {
    pub format: fi_cq_format,
    pub bind: u64,
    pub wait: fi_wait_obj,
    pub version: u32,
    pub hints: fn(&mut fi_info),
}

impl Default for Want {
    fn default() -> Self {
        Self { format: FI_CQ_FORMAT_TAGGED, bind: 0, wait: FI_WAIT_FD, version: u32::MAX, hints: |_| () }
    }
}

/// One endpoint in its own fabric and domain, with one queue for all and counters of its own making.
pub struct Node<'a> {
    pub info: Info<'a>,
    pub fabric: *mut fid_fabric,
    pub domain: *mut fid_domain,
    pub av: *mut fid_av,
    pub cq: *mut fid_cq,
    pub ep: *mut fid_ep,
    pub wrote: *mut fid_cntr,
    pub written: *mut fid_cntr,
    pub regions: Vec<*mut fid_mr>,
}

// SAFETY: the nodes ask for FI_THREAD_SAFE.
unsafe impl Send for Node<'_> {}
// SAFETY: as above.
unsafe impl Sync for Node<'_> {}

pub fn ok(code: c_int) {
    assert_eq!(code, 0);
}

pub fn close(fid: *mut fid) {
    // SAFETY: an open object.
    ok(unsafe { ((*(*fid).ops).close)(fid) });
}

impl<'a> Node<'a> {
    pub fn new(host: &'a Host, want: Want) -> Self {
        let version = want.version.min(host.version());
        let hints = host.hints();
        // SAFETY: hints of the host's; then open objects, attributes, and places for results.
        unsafe {
            (want.hints)(&mut *hints.list);
            let info = host.getinfo(version, None, None, 0, Some(&hints)).expect("an offer");
            let fabric = host.open_fabric(&info);
            let mut node = Self {
                info,
                fabric,
                domain: ptr::null_mut(),
                av: ptr::null_mut(),
                cq: ptr::null_mut(),
                ep: ptr::null_mut(),
                wrote: ptr::null_mut(),
                written: ptr::null_mut(),
                regions: Vec::new(),
            };
            let none = ptr::null_mut();
            ok(((*(*fabric).ops).domain)(fabric, node.info.list, &raw mut node.domain, none));
            let ops = (*node.domain).ops;
            let mut av: fi_av_attr = std::mem::zeroed();
            ok(((*ops).av_open)(node.domain, &raw mut av, &raw mut node.av, none));
            let mut cq: fi_cq_attr = std::mem::zeroed();
            (cq.format, cq.wait_obj, cq.size) = (want.format, want.wait, 4);
            ok(((*ops).cq_open)(node.domain, &raw mut cq, &raw mut node.cq, none));
            let mut cntr: fi_cntr_attr = std::mem::zeroed();
            cntr.wait_obj = FI_WAIT_UNSPEC;
            ok(((*ops).cntr_open)(node.domain, &raw mut cntr, &raw mut node.wrote, none));
            ok(((*ops).cntr_open)(node.domain, &raw mut cntr, &raw mut node.written, none));
            ok(((*ops).endpoint)(node.domain, node.info.list, &raw mut node.ep, none));
            node.bind(node.av.cast(), 0);
            node.bind(node.cq.cast(), FI_TRANSMIT | FI_RECV | want.bind);
            node.bind(node.wrote.cast(), FI_READ | FI_WRITE);
            node.bind(node.written.cast(), FI_REMOTE_WRITE);
            let fid = node.ep.cast::<fid>();
            ok(((*(*fid).ops).control)(fid, FI_ENABLE, none));
            node
        }
    }

    fn bind(&self, other: *mut fid, flags: u64) {
        let fid = self.ep.cast::<fid>();
        // SAFETY: open objects.
        ok(unsafe { ((*(*fid).ops).bind)(fid, other, flags) });
    }

    pub fn name(&self) -> Vec<u8> {
        let mut name = vec![0; 64];
        let mut len = name.len();
        // SAFETY: a buffer of that length.
        ok(unsafe { ((*(*self.ep).cm).getname)(self.ep.cast(), name.as_mut_ptr().cast(), &raw mut len) });
        name.truncate(len);
        name
    }

    pub fn insert(&self, name: &[u8]) -> fi_addr_t {
        let mut addr = FI_ADDR_NOTAVAIL;
        // SAFETY: one address, one place.
        let inserted = unsafe {
            ((*(*self.av).ops).insert)(self.av, name.as_ptr().cast(), 1, &raw mut addr, 0, ptr::null_mut())
        };
        assert_eq!(inserted, 1);
        addr
    }

    /// `fi_cq_read` of one entry in the largest format: the number, or a negative error.
    pub fn read(&self) -> Result<fi_cq_tagged_entry, c_int> {
        self.read_from().map(|(entry, _)| entry)
    }

    pub fn read_from(&self) -> Result<(fi_cq_tagged_entry, fi_addr_t), c_int> {
        let mut entry = fi_cq_tagged_entry {
            op_context: ptr::null_mut(),
            flags: u64::MAX,
            len: usize::MAX,
            buf: ptr::null_mut(),
            data: u64::MAX,
            tag: u64::MAX,
        };
        let mut from = 12345;
        // SAFETY: room for one entry of any format, and one source.
        let got = unsafe { ((*(*self.cq).ops).readfrom)(self.cq, (&raw mut entry).cast(), 1, &raw mut from) };
        if got == 1 { Ok((entry, from)) } else { Err(-got as c_int) }
    }

    /// The next error entry.
    pub fn read_error(&self) -> Option<fi_cq_err_entry> {
        // SAFETY: numbers and pointers may be zero.
        let mut entry: fi_cq_err_entry = unsafe { std::mem::zeroed() };
        // SAFETY: an entry of the newest version.
        let got = unsafe { ((*(*self.cq).ops).readerr)(self.cq, &raw mut entry, 0) };
        assert!(got == 1 || got == -(FI_EAGAIN as isize), "{got}");
        (got == 1).then_some(entry)
    }

    /// Waits for a completion here, while `others` make progress.
    pub fn complete(&self, others: &[&Self]) -> fi_cq_tagged_entry {
        let start = Instant::now();
        loop {
            match self.read() {
                Ok(entry) => return entry,
                Err(FI_EAGAIN) => {}
                Err(error) => panic!("{error}: {:?}", self.read_error().map(|error| error.err)),
            }
            others.iter().for_each(|other| other.progress());
            assert!(start.elapsed() < TIME, "no completion");
        }
    }

    /// Waits for an error here, while `others` make progress.
    pub fn fail(&self, others: &[&Self]) -> fi_cq_err_entry {
        let start = Instant::now();
        loop {
            match self.read() {
                Err(FI_EAVAIL) => return self.read_error().expect("announced"),
                Err(FI_EAGAIN) => {}
                other => panic!("{:?}", other.map(|entry| entry.flags)),
            }
            others.iter().for_each(|other| other.progress());
            assert!(start.elapsed() < TIME, "no error");
        }
    }

    /// Progress without taking anything out of the queue.
    pub fn progress(&self) {
        // SAFETY: no room needed for no entries.
        unsafe { ((*(*self.cq).ops).read)(self.cq, ptr::null_mut(), 0) };
    }

    /// Calls `f` until it does not say to come again.
    pub fn retry(&self, others: &[&Self], mut f: impl FnMut(*mut fid_ep) -> isize) {
        let start = Instant::now();
        loop {
            match f(self.ep) {
                0 => return,
                code if code == -(FI_EAGAIN as isize) => {}
                code => panic!("{code}"),
            }
            self.progress();
            others.iter().for_each(|other| other.progress());
            assert!(start.elapsed() < TIME, "always -FI_EAGAIN");
        }
    }

    pub fn trecv(&self, buf: &mut [u8], from: fi_addr_t, tag: u64, ignore: u64, context: usize) {
        let (at, len) = (buf.as_mut_ptr().cast(), buf.len());
        // SAFETY: the buffer outlives the receive, or the endpoint is closed before.
        ok(unsafe {
            ((*(*self.ep).tagged).recv)(
                self.ep,
                at,
                len,
                ptr::null_mut(),
                from,
                tag,
                ignore,
                self::context(context),
            )
        } as c_int);
    }

    pub fn tsend(&self, others: &[&Self], buf: &[u8], to: fi_addr_t, tag: u64, context: usize) {
        let (at, len) = (buf.as_ptr().cast(), buf.len());
        // SAFETY: the buffer outlives the send, or the endpoint is closed before.
        self.retry(others, |ep| unsafe {
            ((*(*ep).tagged).send)(ep, at, len, ptr::null_mut(), to, tag, self::context(context))
        });
    }

    pub fn tinject(&self, others: &[&Self], buf: &[u8], to: fi_addr_t, tag: u64) {
        // SAFETY: the buffer is there during the call.
        self.retry(others, |ep| unsafe {
            ((*(*ep).tagged).inject)(ep, buf.as_ptr().cast(), buf.len(), to, tag)
        });
    }

    /// `fi_trecvmsg` without retries.
    pub fn trecvmsg(&self, iov: &[iovec], from: fi_addr_t, tag: u64, context: usize, flags: u64) -> c_int {
        let msg = fi_msg_tagged {
            msg_iov: iov.as_ptr(),
            desc: ptr::null_mut(),
            iov_count: iov.len(),
            addr: from,
            tag,
            ignore: 0,
            context: self::context(context),
            data: 0,
        };
        // SAFETY: the memory outlives the receive.
        unsafe { ((*(*self.ep).tagged).recvmsg)(self.ep, &raw const msg, flags) as c_int }
    }

    /// Registers memory until the node is dropped; the key.
    pub fn register(&mut self, memory: &mut [u8], key: u64) -> Result<u64, c_int> {
        let mut mr = ptr::null_mut();
        // SAFETY: the memory outlives the node; a place for the result.
        let code = unsafe {
            ((*(*self.domain).mr).reg)(
                self.domain.cast(),
                memory.as_mut_ptr().cast(),
                memory.len(),
                FI_REMOTE_READ | FI_REMOTE_WRITE,
                0,
                key,
                0,
                &raw mut mr,
                ptr::null_mut(),
            )
        };
        if code != 0 {
            return Err(-code);
        }
        self.regions.push(mr);
        // SAFETY: an open region.
        Ok(unsafe { (*mr).key })
    }

    pub fn count(&self, cntr: *mut fid_cntr) -> u64 {
        // SAFETY: an open counter.
        unsafe { ((*(*cntr).ops).read)(cntr) }
    }
}

impl Drop for Node<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        close(self.ep.cast());
        self.regions.iter().for_each(|&mr| close(mr.cast()));
        close(self.cq.cast());
        close(self.wrote.cast());
        close(self.written.cast());
        close(self.av.cast());
        close(self.domain.cast());
        close(self.fabric.cast());
    }
}

/// Two nodes that know each other: `a` sends to `b` at `to_b`.
pub struct Pair<'a> {
    pub a: Node<'a>,
    pub b: Node<'a>,
    pub to_b: fi_addr_t,
    pub to_a: fi_addr_t,
}

pub fn pair(host: &Host, want: Want) -> Pair<'_> {
    let (a, b) = (Node::new(host, want), Node::new(host, want));
    let (to_b, to_a) = (a.insert(&b.name()), b.insert(&a.name()));
    Pair { a, b, to_b, to_a }
}

/// A context that is only a number.
pub fn context(number: usize) -> *mut c_void {
    ptr::without_provenance_mut(number)
}

pub fn piece(bytes: &mut [u8]) -> iovec {
    iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() }
}

pub fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + seed + (i >> 8)) as u8).collect()
}

/// What stands somewhere that is written meanwhile.
///
/// # Safety
/// It is readable.
pub unsafe fn as_it_is(bytes: &[u8]) -> Vec<u8> {
    // SAFETY: by the caller's promise.
    bytes.iter().map(|byte| unsafe { std::ptr::read_volatile(byte) }).collect()
}
