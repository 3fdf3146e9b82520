//! The processor's counter: what all cores count alike, at a rate that does not change. Whether that is so here the kernel says
//! (`/sys/devices/system/clocksource`); this only reads it. The rate is not known here, and need not be: who reads the kernel's clocks at the same
//! moments, now and then, has it as exactly as they are.

/// What it shows now, in ticks; 0 on processors other than x86-64 and arm64.
#[inline(always)]
pub fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has the instruction, and Linux allows it
    unsafe {
        core::arch::x86_64::_rdtsc()
    }
    #[cfg(target_arch = "aarch64")]
    {
        let ticks: u64;
        // SAFETY: Linux lets user code read the virtual counter
        unsafe {
            core::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack, preserves_flags))
        };
        ticks
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    0
}

#[cfg(all(test, any(target_arch = "x86_64", target_arch = "aarch64")))]
mod tests {
    #[test]
    fn it_runs() {
        let before = super::ticks();
        std::thread::sleep(std::time::Duration::from_millis(1));
        assert!(super::ticks() > before);
    }
}
