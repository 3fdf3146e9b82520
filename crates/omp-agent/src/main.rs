//! One per rank of `polyrail omp`.
#[allow(dead_code)]
mod symbols;
fn main() {}
