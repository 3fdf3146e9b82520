//! A recorder of this process (`polyrail trace`), where there is one: it sees sockets by itself, and is told what shared memory carries and
//! what happens to peers and lanes.

use polyrail_core::frame::Frame;
use polyrail_core::trace::Call;
use polyrail_core::trace::rails::{Recorder, SYMBOL, VERSION, link_name};
use polyrail_core::wire::PeerId;
use std::num::NonZeroU32;
use std::sync::OnceLock;

/// The recorder, if there is one.
fn recorder() -> Option<&'static Recorder> {
    static FOUND: OnceLock<Option<&'static Recorder>> = OnceLock::new();
    *FOUND.get_or_init(|| {
        // SAFETY: a C string, and the loader's own handle
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, SYMBOL.as_ptr()) };
        // SAFETY: only a recorder has a symbol of this name. It stays as long as the process: it was there before the program. Its first word
        // is its version in all of them, and of this version it is what it is declared to be
        let version = unsafe { found.cast::<u32>().as_ref() }.filter(|version| **version == VERSION);
        // SAFETY: as above
        version.and_then(|_| unsafe { found.cast::<Recorder>().as_ref() })
    })
}

/// Tells of an event, a line of JSON; nothing where there is no recorder.
pub(crate) fn event(line: impl FnOnce() -> String) {
    if let Some(recorder) = recorder() {
        let line = line();
        // SAFETY: these are the line's bytes
        unsafe { (recorder.event)(line.as_ptr(), line.len()) };
    }
}

/// The number of a link whose frames are recorded; none of one whose are not.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Watched(Option<NonZeroU32>);

impl Watched {
    /// A link of the first endpoint to the second.
    pub fn link(near: PeerId, far: PeerId) -> Self {
        let [near, far] = [near, far].map(|id| *id.0.first_chunk().unwrap_or(&[0; 8]));
        let number = |recorder: &Recorder| (recorder.link)(link_name(near, far), link_name(far, near));
        Self(recorder().and_then(|recorder| NonZeroU32::new(number(recorder))))
    }

    /// Whether it is one.
    #[inline(always)]
    pub fn is_watched(self) -> bool {
        self.0.is_some()
    }

    /// Something begins to be moved, if that is recorded.
    #[inline(always)]
    pub fn begin(self) -> Option<Moving> {
        self.0.and_then(Moving::begin)
    }
}

/// What is being moved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moving {
    link: NonZeroU32,
    start: u64,
}

impl Moving {
    #[inline(never)]
    fn begin(link: NonZeroU32) -> Option<Self> {
        Some(Self { link, start: (recorder()?.now)() })
    }

    /// It is: so many bytes.
    #[inline(never)]
    pub fn by(self, call: Call, bytes: usize) {
        if let Some(recorder) = recorder() {
            (recorder.moved)(call as u8, self.link.get(), self.start, bytes as u64);
        }
    }

    /// A frame was put into shared memory.
    #[inline(never)]
    pub fn put(self, header: &[u8], payload: usize) {
        match Frame::parse(header).ok().and_then(|(frame, _)| carries(&frame)) {
            Some(Carries::Message) => self.by(Call::ShmPut, payload),
            Some(Carries::Part) => self.by(Call::ShmPart, payload),
            None => {}
        }
    }

    /// A frame was taken out.
    #[inline(never)]
    pub fn took(self, frame: &Frame, payload: usize) {
        if carries(frame).is_some() {
            self.by(Call::ShmTake, payload);
        }
    }
}

/// What a frame carries of the users' bytes.
enum Carries {
    /// A whole message.
    Message,
    /// A part of one, or of memory.
    Part,
}

fn carries(frame: &Frame) -> Option<Carries> {
    match frame {
        Frame::Eager { .. } | Frame::Am { .. } | Frame::Atomic { .. } => Some(Carries::Message),
        Frame::Frag { .. } | Frame::Put { .. } | Frame::GetData { .. } | Frame::AtomicData { .. } => {
            Some(Carries::Part)
        }
        _ => None,
    }
}
