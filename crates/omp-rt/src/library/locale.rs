//! Locales: the C library's, and the C++ library's global one.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::ffi::CString;
use std::sync::Mutex;

use super::{NAME, Told, only_serial};
use crate::symbols::real;
use crate::{alloc, run, symbols, sys};

/// Serial code has set a locale.
static SET: AtomicBool = AtomicBool::new(false);
/// It has set a global one, of C++, that has no name.
static UNNAMED: AtomicBool = AtomicBool::new(false);
/// It has set one at all.
static MADE: AtomicBool = AtomicBool::new(false);
/// One that has a name.
static GLOBAL: Mutex<Option<CString>> = Mutex::new(None);
/// What this process has taken over.
static TAKEN: Mutex<[Option<CString>; 2]> = Mutex::new([None, None]);

/// What is to be put back where rank 0 goes on from a checkpoint.
pub fn remembered() -> [bool; 2] {
    [&UNNAMED, &MADE].map(|one| one.load(Relaxed))
}

/// Puts it back; others are told of the C library's.
pub fn remember([unnamed, made]: [bool; 2]) {
    UNNAMED.store(unnamed, Relaxed);
    MADE.store(made, Relaxed);
    SET.store(true, Relaxed);
}

fn keep(name: &CStr, place: &mut [u8; NAME]) {
    let bytes = name.to_bytes_with_nul();
    match place.get_mut(..bytes.len()) {
        Some(place) => place.copy_from_slice(bytes),
        None => sys::stop("a locale", "its name is longer than 2 KiB, and cannot be told to other ranks"),
    }
}

/// A region of several ranks begins.
pub fn check() {
    if run::is_replicated() && MADE.load(Relaxed) {
        sys::stop(
            "a parallel region after std::locale::global",
            "with --serial replicated, where the C++ library keeps in shared memory what each rank makes of the locale: run it with --serial master",
        );
    }
    if UNNAMED.load(Relaxed) {
        sys::stop(
            "a parallel region after std::locale::global of a locale that has no name",
            "other ranks cannot be told of facets of the program's own: imbue streams with it where they are made, or run with -n 1",
        );
    }
}

/// Rank 0, a region of several ranks begins.
pub fn tell(told: &mut Told) {
    check();
    if SET.swap(false, Relaxed) {
        // SAFETY: asks for the name, which is there until the next call
        unsafe {
            let name = c_locale(libc::LC_ALL, core::ptr::null());
            if !name.is_null() {
                keep(CStr::from_ptr(name), &mut told.locale);
            }
        }
    }
    if let Some(name) = GLOBAL.lock().unwrap_or_else(|broken| broken.into_inner()).take() {
        keep(&name, &mut told.global);
    }
}

/// Ranks above 0: takes over what has changed.
pub fn agree(told: &Told) {
    let mut taken = TAKEN.lock().unwrap_or_else(|broken| broken.into_inner());
    let [locale, global] = &mut *taken;
    if let Some(name) = news(&told.locale, locale) {
        // SAFETY: a name
        let set = alloc::privately(|| unsafe { c_locale(libc::LC_ALL, name.as_ptr()) });
        if set.is_null() {
            sys::fail(format_args!(
                "rank {} does not have the locale {} that serial code has set: install it on all hosts",
                run::rank(),
                name.to_string_lossy()
            ));
        }
    }
    if let Some(name) = news(&told.global, global) {
        // SAFETY: a name, which the C library has just set
        alloc::privately(|| unsafe { set_global(name) });
    }
}

/// What is new, and taken over from now on.
fn news<'a>(told: &[u8], taken: &'a mut Option<CString>) -> Option<&'a CStr> {
    let name = CStr::from_bytes_until_nul(told).ok().filter(|name| !name.is_empty())?;
    if taken.as_deref() == Some(name) {
        return None;
    }
    *taken = Some(name.into());
    taken.as_deref()
}

unsafe fn c_locale(category: c_int, name: *const c_char) -> *mut c_char {
    static REAL: AtomicUsize = AtomicUsize::new(0);
    type Real = unsafe extern "C" fn(c_int, *const c_char) -> *mut c_char;
    // SAFETY: the caller's
    unsafe { real::<Real>(c"setlocale", &REAL)(category, name) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn setlocale(category: c_int, name: *const c_char) -> *mut c_char {
    if !name.is_null() {
        only_serial("setlocale");
        SET.store(true, Relaxed);
    }
    // the C library's own, which it changes while it is used
    // SAFETY: the caller's
    alloc::privately(|| unsafe { c_locale(category, name) })
}

/// `std::locale`, which is a pointer; the caller's place for one that is returned comes first.
type Global = unsafe extern "C" fn(*mut *mut c_void, *const *mut c_void) -> *mut *mut c_void;

fn global() -> Global {
    static REAL: AtomicUsize = AtomicUsize::new(0);
    real(c"_ZNSt6locale6globalERKS_", &REAL)
}

/// `std::locale::global`.
#[cfg_attr(not(test), unsafe(export_name = "_ZNSt6locale6globalERKS_"))]
unsafe extern "C" fn set(before: *mut *mut c_void, locale: *const *mut c_void) -> *mut *mut c_void {
    only_serial("std::locale::global");
    // SAFETY: the caller's
    unsafe {
        if let Some(name) = name(locale) {
            MADE.store(name.as_c_str() != c"C", Relaxed);
            UNNAMED.store(name.as_c_str() == c"*", Relaxed);
            *GLOBAL.lock().unwrap_or_else(|broken| broken.into_inner()) = Some(name);
        }
        global()(before, locale)
    }
}

/// `std::locale::name`.
unsafe fn name(locale: *const *mut c_void) -> Option<CString> {
    static NAME_OF: AtomicUsize = AtomicUsize::new(0);
    /// `std::string` as GCC 5 and later have it: where it is, its length, and room for a short one.
    #[repr(C)]
    struct Text {
        at: *mut c_char,
        bytes: usize,
        room: [usize; 2],
    }
    let name = symbols::find(c"_ZNKSt6locale4nameB5cxx11Ev", &NAME_OF)?;
    type Name = unsafe extern "C" fn(*mut Text, *const *mut c_void) -> *mut Text;
    // SAFETY: the C++ library's function, which makes the string; if that is long, it is a block of ours
    unsafe {
        let name = core::mem::transmute::<usize, Name>(name);
        let mut text = Text { at: core::ptr::null_mut(), bytes: 0, room: [0; 2] };
        name(&raw mut text, locale);
        let copy = CStr::from_ptr(text.at).into();
        if text.at.cast() != (&raw mut text.room) {
            libc::free(text.at.cast());
        }
        Some(copy)
    }
}

/// `std::locale::global(std::locale(name))`.
unsafe fn set_global(name: &CStr) {
    static MAKE: AtomicUsize = AtomicUsize::new(0);
    let Some(make) = symbols::find(c"_ZNSt6localeC1EPKc", &MAKE) else { return };
    // SAFETY: the C++ library's constructor; both locales stay
    unsafe {
        let (mut locale, mut before) = (core::ptr::null_mut(), core::ptr::null_mut());
        core::mem::transmute::<usize, unsafe extern "C" fn(*mut *mut c_void, *const c_char)>(make)(
            &raw mut locale,
            name.as_ptr(),
        );
        global()(&raw mut before, &raw const locale);
    }
}
