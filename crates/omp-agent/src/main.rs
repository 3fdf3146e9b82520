//! One per rank of `polyrail omp`.
fn main() {}
