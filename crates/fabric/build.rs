//! How the provider's library is linked.

fn main() {
    // libfabric unloads providers at exit. Threads that wait for a name service, and the C library's list of thread-local
    // destructors, still lead into the code then: it stays.
    println!("cargo:rustc-link-arg-cdylib=-Wl,-z,nodelete");
    println!("cargo:rerun-if-changed=build.rs");
}
