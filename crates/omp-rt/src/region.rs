//! How a region is begun, and its function called.

use core::ffi::c_int;

use crate::floating::Floating;

/// How a region is begun on all ranks.
#[derive(Clone, Copy, Debug)]
pub struct Region<'a> {
    /// The compiler's function.
    pub function: usize,
    /// GCC's calling convention (one pointer) or LLVM's (`gtid`, `tid`, arguments).
    pub gomp: bool,
    /// The arguments: pointers to what is shared, values of what is not.
    pub args: &'a [usize],
    /// Threads of the team, all ranks together.
    pub team: usize,
    /// What the compiler says of the place (`ident_t`'s text), 0 if nothing.
    pub place: usize,
    /// How the thread that begins it computes with floating point: all threads do so.
    pub floating: Floating,
}

/// Calls the compiler's function: pointers to the global and the team's number, then `count` arguments.
///
/// # Safety
/// The function takes so many, and they are there.
#[unsafe(naked)]
pub unsafe extern "C" fn microtask(
    function: usize,
    global: *const c_int,
    number: *const c_int,
    count: usize,
    args: *const usize,
) {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "mov rax, rdi", // function
        "mov rdi, rsi",
        "mov rsi, rdx",
        "mov r10, rcx", // count
        "mov r11, r8",  // arguments
        "lea rcx, [r10 + 1]",
        "and rcx, -2",
        "shl rcx, 3",
        "sub rsp, rcx", // room for all of them: the stack stays a multiple of 16
        "mov rcx, 4",
        "2:", // from the fifth on: on the stack
        "cmp rcx, r10",
        "jae 3f",
        "mov rdx, [r11 + rcx * 8]",
        "mov [rsp + rcx * 8 - 32], rdx",
        "inc rcx",
        "jmp 2b",
        "3:", // the first four: in registers
        "cmp r10, 1",
        "jb 4f",
        "mov rdx, [r11]",
        "je 4f",
        "mov rcx, [r11 + 8]",
        "cmp r10, 3",
        "jb 4f",
        "mov r8, [r11 + 16]",
        "je 4f",
        "mov r9, [r11 + 24]",
        "4:",
        "call rax",
        "leave",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
    )
}
