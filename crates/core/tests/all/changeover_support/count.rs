//! What all schedules did together: a checker that never changes anything would find nothing.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! counts {
    ($($name:ident),* $(,)?) => {
        #[derive(Default)]
        pub struct Counts {
            $(pub $name: AtomicU64,)*
        }

        impl Counts {
            /// Each name with its count.
            pub fn all(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name.load(Relaxed)),)*]
            }
        }

    };
}

counts! {
    schedules, events, pieces, values, held, proposals, changes, crossed, unable, held_down, timed_out, no_control, aborted,
    rescues, rescued_pieces, control_failures, remade_for_control, remade_for_paths, remade_alone, crashes, dropped, refused,
}

/// Of this thread, and so of this test: others that count run beside it.
pub fn counts() -> &'static Counts {
    thread_local! {
        static OWN: &'static Counts = Box::leak(Box::default());
    }
    OWN.with(|own| *own)
}

pub fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}

pub fn add(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Relaxed);
}
