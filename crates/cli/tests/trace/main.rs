//! `polyrail trace` on real programs: what it recorded is compared with what the programs know of themselves, and under hostile
//! conditions the programs must not notice it. Programs are the C files beside this one (`truth.h`), built at test time.

mod attach;
mod calls;
mod full;
mod kept;
mod limits;
mod processes;
mod rails;
mod short;
mod silent;
mod support;
mod tracer;
mod true_to_life;
mod unseen;
