//! `polyrail trace` on real programs: what it recorded is compared with what the programs know of themselves, and under hostile
//! conditions the programs must not notice it. Programs are the C files beside this one (`truth.h`), built at test time.

mod calls;
mod full;
mod limits;
mod processes;
mod support;
mod tracer;
mod unseen;
