//! Leaving a stack as it is, and coming back to it, maybe in another process.

use core::arch::naked_asm;

/// Calls `leave` with the stack's end as it is now, below which is nothing that is needed; comes back when that does, or by [`back`] with the same number, on a stack that has the
/// same bytes from there on.
///
/// # Safety
/// `leave` does not unwind.
#[unsafe(naked)]
pub unsafe extern "C" fn here(leave: extern "C" fn(usize)) {
    naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "sub rsp, 8",
        "stmxcsr [rsp]",
        "fnstcw [rsp + 4]",
        "mov rax, rdi",
        "mov rdi, rsp",
        "call rax",
        "2:",
        "ldmxcsr [rsp]",
        "fldcw [rsp + 4]",
        "add rsp, 8",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".globl polyrail_omp_back",
        ".hidden polyrail_omp_back",
        "polyrail_omp_back:",
        "mov rsp, rdi",
        "jmp 2b",
        ".cfi_endproc",
    )
}

unsafe extern "C" {
    fn polyrail_omp_back(sp: usize) -> !;
}

/// Goes on behind the call of [`here`] whose stack ended at `sp`.
///
/// # Safety
/// The stack from `sp` on has the bytes that it had then, and is the calling thread's.
pub unsafe fn back(sp: usize) -> ! {
    // SAFETY: the caller's
    unsafe { polyrail_omp_back(sp) }
}
