//! What libfabric finds when it loads this library.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};

use polyrail_core::wire::HostId;

use crate::ffi::host::Host;
use crate::ffi::{fi_context, fi_provider};
use crate::limits::VERSION;
use crate::{info, log, object, registry, settings};

/// Where libfabric keeps what it knows of us: it writes there.
struct Static(UnsafeCell<MaybeUninit<fi_provider>>);

// SAFETY: written by `fi_prov_ini`, which libfabric serialises, and by libfabric afterwards.
unsafe impl Sync for Static {}

static PROVIDER: Static = Static(UnsafeCell::new(MaybeUninit::uninit()));

/// What libfabric calls first. Null where the process has no libfabric that we could serve.
#[unsafe(no_mangle)]
pub extern "C" fn fi_prov_ini() -> *mut fi_provider {
    let place = PROVIDER.0.get().cast::<fi_provider>();
    let Ok(host) = Host::find() else { return ptr::null_mut() };
    let provider = fi_provider {
        version: VERSION,
        // What an application may ask for at most. The definitions in `ffi` have only grown at their ends.
        fi_version: host.version(),
        context: fi_context { internal: [ptr::null_mut(); 4] },
        name: c"polyrail".as_ptr(),
        getinfo: info::getinfo,
        fabric: object::fabric::open,
        cleanup: Some(cleanup),
    };
    // SAFETY: libfabric serialises this call, and uses the place only once it has been returned.
    unsafe { place.write(provider) };
    let Some(place) = NonNull::new(place) else { return ptr::null_mut() };
    // SAFETY: the provider is static and its name a literal; only `settings` reads parameters, all as text.
    let host = unsafe { host.of_provider(place) };
    settings::define(log::set_host(host));
    place.as_ptr()
}

/// libfabric calls it when the process ends, then unloads us (in vain: the library is linked so that it stays). What
/// applications left open is closed, so that no thread of ours runs on.
unsafe extern "C" fn cleanup() {
    registry::stop_all();
}

/// The companion tells by `tell` which way collective operations went: it writes what [`polyrail_rails::top::Collective`] reads, if there is room,
/// and says how long that is.
#[unsafe(no_mangle)]
pub extern "C" fn polyrail_collectives(tell: unsafe extern "C" fn(*mut u8, usize) -> usize) {
    const LONGEST: usize = 64 << 10;
    polyrail_rails::top::tell_collectives(move || {
        let mut text = vec![0u8; LONGEST];
        // SAFETY: the companion's function, which stays loaded, and room as it is told
        let written = unsafe { tell(text.as_mut_ptr(), text.len()) };
        text.truncate(if written <= LONGEST { written } else { 0 });
        text
    });
}

/// The companion (`crates/mpi`) waits for something else than messages, and only looks in here: from a call with another number than 0 on until
/// one with 0, calls of this process that find nothing return at once. Counted.
#[unsafe(no_mangle)]
pub extern "C" fn polyrail_look_in(begins: c_int) {
    if begins != 0 { polyrail_rails::worker::look_in() } else { polyrail_rails::worker::look_in_no_more() }
}

/// The companion (`crates/mpi`) says that the calling thread asks whether something has come, from a call with another number than 0 on until one
/// with 0, and does not wait for it: it may have something else to do.
#[unsafe(no_mangle)]
pub extern "C" fn polyrail_asking(begins: c_int) {
    polyrail_rails::worker::asking(begins != 0);
}

/// The companion (`crates/mpi`) says that the calling thread completes what the process has done to itself, from a call with another number than 0 on until one with 0: where the
/// MPI does that, there is nothing of it here.
#[unsafe(no_mangle)]
pub extern "C" fn polyrail_at_home(begins: c_int) {
    polyrail_rails::worker::at_home(begins != 0);
}

/// The companion asks whether a host, by its number, is far: 1, or 0 where it is near or no network has led to it. No lock of a domain is taken: no call of
/// libfabric's is under way.
#[unsafe(no_mangle)]
pub extern "C" fn polyrail_is_far(host: u64) -> c_int {
    polyrail_rails::far::is_far(HostId(host)).unwrap_or(false).into()
}

/// The companion sleeps between its looks, on a word (futex(2)): the domains' threads go on with what comes, where they do not rest, and wake it when the
/// application has to be told of something; with another number than 0, when anything came. Its place, for [`polyrail_sleep_no_more`].
#[unsafe(no_mangle)]
pub extern "C" fn polyrail_sleep_between(word: *mut u32, any: c_int) -> c_int {
    let place = polyrail_rails::worker::sleep_between(word, any != 0);
    registry::falls_asleep();
    place as c_int
}

/// The end of [`polyrail_sleep_between`]; another number than 0 if a thread of ours woke it.
#[unsafe(no_mangle)]
pub extern "C" fn polyrail_sleep_no_more(place: c_int) -> c_int {
    polyrail_rails::worker::sleep_no_more(place as usize).into()
}
