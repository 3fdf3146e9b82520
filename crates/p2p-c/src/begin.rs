//! Calls by which a run begins and ends.

use crate::failure::{Failure, answer};
use crate::handle::{Handle, State, take_back, with_handle};
use crate::layout::{
    P2P_ADDRESS, P2P_ASYNCHRONOUS, P2P_BOUNDED, P2P_E_SILENT, P2P_HYBRID, P2P_SYNCHRONOUS, P2Pjob,
    P2Psettings,
};
use crate::memory::{Answer, bytes, fill_growing, read_growing, room, text};
use polyrail_p2p::start::{read_address, write_address};
use polyrail_p2p::view::{MEMBERS, PARTS, TASK};
use polyrail_p2p::{Error, Founding, Job, Peers, Scheme, Settings};
use std::ffi::{c_char, c_int, c_void};
use std::time::{Duration, Instant};

/// Iterations between two rounds, where a job does not say.
const EVERY: u64 = 16;
/// Seconds that are as long as it takes: thirty years.
const FOREVER: f64 = 1e9;

/// A time that the program gives in seconds.
pub(crate) fn duration(seconds: f64) -> Result<Duration, Failure> {
    if seconds >= 0.0 {
        return Ok(Duration::from_secs_f64(seconds.min(FOREVER)));
    }
    Err(Failure::misuse(format!("{seconds} seconds are none to wait for: 0 or more are, or INFINITY")))
}

/// # Safety
/// As [`read_growing`]; null means all zero.
unsafe fn settings(from: *const P2Psettings) -> Result<Settings, Failure> {
    let given = if from.is_null() {
        P2Psettings::default()
    } else {
        // SAFETY: the caller promises it.
        unsafe { read_growing(from)? }
    };
    if given.reserved != 0 {
        return Err(Failure::misuse(
            "a P2Psettings has a reserved field that is not 0; is it set to zero before it is filled in?",
        ));
    }
    let weight = u16::try_from(given.weight).map_err(|_| {
        Failure::misuse(format!("a weight of {}: at most {} is possible", given.weight, u16::MAX))
    })?;
    let patience = duration(given.patience)?;
    let own = Settings::from_env()?;
    Ok(Settings {
        site: if given.site == 0 { own.site } else { given.site },
        weight: if given.looks_on != 0 { 0 } else { weight.max(1) },
        patience: (!patience.is_zero()).then_some(patience),
        ..own
    })
}

/// # Safety
/// As [`read_growing`]; the task's bytes are where it says.
unsafe fn job(from: *const P2Pjob) -> Result<Job, Failure> {
    // SAFETY: the caller promises it.
    let given = unsafe { read_growing(from)? };
    let scheme = match (given.scheme, given.bound) {
        (P2P_SYNCHRONOUS, 0) => Scheme::Synchronous,
        (P2P_ASYNCHRONOUS, 0) => Scheme::Asynchronous,
        (P2P_HYBRID, 0) => Scheme::Hybrid,
        (P2P_BOUNDED, 1..) => Scheme::Bounded(given.bound),
        (P2P_BOUNDED, 0) => {
            return Err(Failure::misuse(
                "a job of P2P_BOUNDED has a bound of 0: at least 1 iteration is possible, or P2P_SYNCHRONOUS",
            ));
        }
        (P2P_SYNCHRONOUS..=P2P_HYBRID, _) => {
            return Err(Failure::misuse("a job has a bound, and its scheme none: it is for P2P_BOUNDED"));
        }
        (other, _) => {
            return Err(Failure::misuse(format!(
                "a job's scheme is {other}, which is none: P2P_SYNCHRONOUS and three others are"
            )));
        }
    };
    if !(1..=PARTS as u32).contains(&given.parts) {
        return Err(Failure::misuse(format!("a job has {} parts: 1 to {PARTS} are possible", given.parts)));
    }
    if !(given.tolerance >= 0.0 && given.tolerance.is_finite()) {
        return Err(Failure::misuse(format!(
            "a job's tolerance is {}: 0 or more is possible",
            given.tolerance
        )));
    }
    if given.task_len > TASK {
        return Err(Failure::misuse(format!(
            "a job's task has {} bytes: at most {TASK} are possible",
            given.task_len
        )));
    }
    // SAFETY: the caller promises it.
    let task = unsafe { bytes(given.task, given.task_len)? }.to_vec();
    let every = if given.every == 0 { EVERY } else { given.every };
    Ok(Job { parts: given.parts, scheme, tolerance: given.tolerance, every, keep: given.keep, task })
}

/// # Safety
/// The place is there, or null.
unsafe fn begin(place: *mut *mut Handle, state: impl FnOnce() -> Result<State, Failure>) -> c_int {
    answer(|| {
        // SAFETY: the caller promises it.
        let place = unsafe { Answer::new(place, "the place for the handle")? };
        place.give(Box::into_raw(Handle::new(state()?)));
        Ok(())
    })
}

/// # Safety
/// Pointers lead to what the header says, or are null.
#[unsafe(no_mangle)]
unsafe extern "C" fn P2Pstart(of: *const P2Psettings, what: *const P2Pjob, peers: *mut *mut Handle) -> c_int {
    // SAFETY: the caller promises it of all three.
    unsafe {
        begin(peers, || {
            let (settings, job) = (settings(of)?, job(what)?);
            Ok(State::Running(Box::new(Peers::start(settings, job)?)))
        })
    }
}

/// # Safety
/// Pointers lead to what the header says, or are null.
#[unsafe(no_mangle)]
unsafe extern "C" fn P2Pfound(of: *const P2Psettings, peers: *mut *mut Handle) -> c_int {
    // SAFETY: the caller promises it of both.
    unsafe { begin(peers, || Ok(State::Founding(Box::new(Founding::new(settings(of)?)?)))) }
}

/// # Safety
/// Pointers lead to what the header says, or are null.
#[unsafe(no_mangle)]
unsafe extern "C" fn P2Pjoin(
    of: *const P2Psettings,
    address: *const c_char,
    peers: *mut *mut Handle,
) -> c_int {
    // SAFETY: the caller promises it of all three.
    unsafe {
        begin(peers, || {
            let address = read_address(text(address, "the address")?)?;
            Ok(State::Running(Box::new(Peers::join(settings(of)?, &address)?)))
        })
    }
}

/// # Safety
/// Pointers lead to what the header says, or are null.
#[unsafe(no_mangle)]
unsafe extern "C" fn P2Pgather(peers: *mut Handle, what: *const P2Pjob, others: u32, seconds: f64) -> c_int {
    let call = |inner: &mut crate::handle::Inner| {
        if !matches!(inner.state, State::Founding(_)) {
            inner.peers()?;
            return Err(Failure::misuse("the run has begun already"));
        }
        // SAFETY: the caller promises it.
        let (job, most) = (unsafe { job(what)? }, duration(seconds)?);
        if others as usize >= MEMBERS {
            return Err(Failure::misuse(format!(
                "{others} others are too many: {} are possible",
                MEMBERS - 1
            )));
        }
        let State::Founding(founding) = std::mem::replace(&mut inner.state, State::Over) else {
            return Ok(());
        };
        let begin = Instant::now();
        let mut late = None;
        let begun = founding.gather(job, others as usize, |joined| {
            if begin.elapsed() < most {
                return Ok(());
            }
            late = Some(joined);
            Err(Error::Silent("others".into(), most))
        });
        let peers = begun.map_err(|why| match late {
            Some(joined) => Failure {
                code: P2P_E_SILENT,
                text: format!("{joined} of {others} others have joined in {} s", most.as_secs_f64()),
            },
            None => why.into(),
        })?;
        inner.task.clone_from(&peers.view().job.task);
        inner.state = State::Running(Box::new(peers));
        Ok(())
    };
    // SAFETY: the caller promises it.
    unsafe { with_handle(peers, call) }
}

/// # Safety
/// Pointers lead to what the header says, or are null.
#[unsafe(no_mangle)]
unsafe extern "C" fn P2Paddress(peers: *const Handle, into: *mut c_char, len: usize) -> c_int {
    let call = |inner: &mut crate::handle::Inner| {
        let address = match &inner.state {
            State::Founding(founding) => founding.address(),
            _ => {
                let peers = inner.peers()?;
                peers.view().members[peers.me()].address
            }
        };
        if len < P2P_ADDRESS {
            return Err(Failure::misuse(format!(
                "an address needs {P2P_ADDRESS} bytes of room, P2P_ADDRESS, and has {len}"
            )));
        }
        // SAFETY: the caller promises it.
        let into = unsafe { room(into.cast::<u8>(), len, "room for the address")? };
        let text = write_address(&address);
        into[..text.len()].copy_from_slice(text.as_bytes());
        into[text.len()] = 0;
        Ok(())
    };
    // SAFETY: the caller promises it.
    unsafe { with_handle(peers, call) }
}

/// # Safety
/// The handle is one, or null, and no thread uses it afterwards.
#[unsafe(no_mangle)]
unsafe extern "C" fn P2Pleave(peers: *mut Handle, seconds: f64) -> c_int {
    answer(|| {
        let most = duration(seconds)?;
        // SAFETY: the caller promises it.
        unsafe { take_back(peers, most) }
    })
}

/// # Safety
/// Pointers lead to what the header says, or are null.
#[unsafe(no_mangle)]
unsafe extern "C" fn P2Pget_job(peers: *const Handle, into: *mut P2Pjob) -> c_int {
    let call = |inner: &mut crate::handle::Inner| {
        let job = &inner.peers()?.view().job;
        let (scheme, bound) = match job.scheme {
            Scheme::Synchronous => (P2P_SYNCHRONOUS, 0),
            Scheme::Asynchronous => (P2P_ASYNCHRONOUS, 0),
            Scheme::Bounded(bound) => (P2P_BOUNDED, bound),
            Scheme::Hybrid => (P2P_HYBRID, 0),
        };
        let (tolerance, every, keep, parts) = (job.tolerance, job.every, job.keep, job.parts);
        let task = &inner.task;
        let fill = |size| P2Pjob {
            size,
            tolerance,
            every,
            keep,
            bound,
            task: task.as_ptr().cast::<c_void>(),
            task_len: task.len(),
            parts,
            scheme,
        };
        // SAFETY: the caller promises it.
        unsafe { fill_growing(into, fill) }
    };
    // SAFETY: the caller promises it.
    unsafe { with_handle(peers, call) }
}
