//! Begins in a process: between the loader and `main`.
//!
//! Rank 0 runs `main`. Ranks above 0 run the program's constructors, so that the C++ library is ready, and then work for rank 0 (`remote::next`) on a stack
//! that is not the program's, in a thread of the pool: the main stack and the main thread's storage become images of rank 0's. If serial code runs on every rank
//! (`serial`), all run `main`.

use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::ptr::null_mut;

use polyrail_omp::area::{LOCALS, setting};

use crate::{
    agent, alloc, api, calls, checkpoint, icv, input, kmpc, library, mapping, modules, output, run, serial,
    sys, team, track, trap,
};

type Main = unsafe extern "C" fn(c_int, *mut *mut c_char, *mut *mut c_char) -> c_int;
type Real = unsafe extern "C" fn(Main, c_int, *mut *mut c_char, usize, usize, usize, *mut c_void) -> c_int;

/// The program's.
static MAIN: AtomicUsize = AtomicUsize::new(0);

/// The C library's function that the program's entry calls (LSB, `__libc_start_main`).
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn __libc_start_main(
    main: Main,
    argc: c_int,
    argv: *mut *mut c_char,
    init: usize,
    fini: usize,
    loader_fini: usize,
    stack: *mut c_void,
) -> c_int {
    // SAFETY: the next definition is the C library's
    unsafe {
        let real: *mut c_void = libc::dlsym(libc::RTLD_NEXT, c"__libc_start_main".as_ptr());
        if real.is_null() {
            sys::fail(format_args!("the C library has no __libc_start_main"));
        }
        let real: Real = core::mem::transmute(real);
        MAIN.store(main as usize, Ordering::Relaxed);
        agent::attach();
        serial::find_time();
        team::tell(team::Told {
            ends: checkpoint::flags,
            ended: checkpoint::gather,
            leads: checkpoint::receive,
        });
        if run::size() == 1 && !run::is_to_be_kept() {
            team::offers::start();
            api::display::begin();
            return real(main, argc, argv, init, fini, loader_fini, stack);
        }
        if run::size() > 1 {
            same_everywhere();
            serial::choose();
        }
        if run::rank() > 0 {
            agent::use_slot(LOCALS - 1);
            calls::start();
        }
        real(first, argc, argv, init, fini, loader_fini, stack)
    }
}

/// In place of `main`.
unsafe extern "C" fn first(argc: c_int, argv: *mut *mut c_char, environment: *mut *mut c_char) -> c_int {
    // SAFETY: what was kept is the program's `main`
    unsafe {
        run::set_words(argv as usize);
        match run::size() {
            1 => prepare_alone(),
            _ => prepare(argv as usize),
        }
        checkpoint::begin();
        if run::is_resumed() {
            checkpoint::resume();
        }
        let main: Main = core::mem::transmute(MAIN.load(Ordering::Relaxed));
        main(argc, argv, environment)
    }
}

/// As [`prepare`], of one rank.
unsafe fn prepare_alone() {
    // SAFETY: before anything else of the program
    unsafe {
        alloc::started();
        track::start(mapping::area().settings & setting::COMPARE != 0, &Vec::from_iter(output::objects()));
        team::offers::start();
        team::watch_forks();
        api::display::begin();
    }
}

/// What comes before `main`, whose words are at `words` on the main stack. On ranks above 0 it comes back only if serial code runs on every rank.
#[inline(never)]
unsafe fn prepare(words: usize) {
    // SAFETY: before anything else of the program
    unsafe {
        let rank = run::rank();
        alloc::started();
        trap::start(rank == 0);
        kmpc::sync::begin();
        track::start(mapping::area().settings & setting::COMPARE != 0, &Vec::from_iter(output::objects()));
        calls::regions_begin();
        team::offers::start();
        if rank > 0 && !run::is_replicated() {
            output::forget_all();
            input::prepare();
            checkpoint::begin();
            const STACK: usize = 8 << 20;
            sys::on_stack(sys::map(STACK) as usize + STACK, serve_rank_0, 0);
        }
        alloc::privately(team::watch_forks);
        if rank == 0 {
            library::begin();
            start_server();
        }
        team::watch_forks();
        if run::is_replicated() {
            start_replicated(words);
        }
        api::display::begin();
    }
}

/// Serial code on every rank begins; `words`: as for [`prepare`].
fn start_replicated(words: usize) {
    run::set_main();
    // what looks at the process once does so now, where it is nobody's serial code
    team::may_fork();
    icv::processors();
    icv::bind();
    serial::prepare();
    if run::rank() == 0 {
        calls::start();
    }
    serial::start(words);
    if run::rank() > 0 {
        team::lead();
    }
    run::open(true);
    output::prepare();
}

extern "C" fn serve_rank_0(_: usize) {
    // SAFETY: no other thread is there, and this one's stack is elsewhere
    unsafe { track::clear() };
    team::lead();
    let never = AtomicU32::new(0);
    loop {
        sys::wait(&never, 0);
    }
}

/// What is loaded, and where, must be the same on all ranks, or a pointer does not mean the same.
fn same_everywhere() {
    let mut text = modules::text();
    let here = &raw const text as usize;
    text += &format!("main stack around {:#x}\n", here >> 16 << 16);
    if let Err(difference) = agent::same(1, text.as_bytes()) {
        sys::fail(format_args!(
            "rank {} has other addresses than rank 0, so that pointers would not mean the same: {difference}. Are the program and its libraries \
             the same on all hosts?",
            run::rank()
        ));
    }
}

/// The thread by which other ranks use rank 0's memory and descriptors.
fn start_server() {
    extern "C" fn server(_: *mut c_void) -> *mut c_void {
        // teams have a thread less than there are slots
        agent::use_slot(LOCALS - 1);
        agent::serve(calls::serve)
    }
    // SAFETY: a thread that never ends; signals are for the program's threads
    alloc::privately(|| unsafe {
        let (mut all, mut before) = (core::mem::zeroed(), core::mem::zeroed());
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let mut thread = core::mem::zeroed();
        let failed = libc::pthread_create(&raw mut thread, std::ptr::null(), server, null_mut());
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, null_mut());
        if failed != 0 {
            sys::fail(format_args!("no thread can be started (error {failed})"));
        }
    });
}
