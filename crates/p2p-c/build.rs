//! How the library for C is linked.

fn main() {
    // The number is that of the header's ABI, not of the release: it changes when programs have to be compiled anew (scripts/install).
    println!("cargo:rustc-link-arg-cdylib=-Wl,-soname,libpolyrail_p2p.so.0");
    // threads that move bytes while programs compute still lead into the code when somebody unloads it: it stays
    println!("cargo:rustc-link-arg-cdylib=-Wl,-z,nodelete");
    println!("cargo:rerun-if-changed=build.rs");
}
