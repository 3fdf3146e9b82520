//! One rail of the lab that can be made as bad as a wide-area line: what it does to packets ([`shaper`]), and how that is
//! written down ([`settings`]). The program around it, `polyrail-lab-relay`, moves the packets; docs/lab.md is its manual.
#![forbid(unsafe_code)]

pub mod settings;
pub mod shaper;
