//! The threads of a domain: `auto` makes progress without the application, `pusher` sends what was held back. Neither knows what
//! a domain is: what they do there is a trait of theirs.

pub mod auto;
pub mod pusher;
