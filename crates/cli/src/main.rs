//! The `polyrail` command.
fn main() {}
