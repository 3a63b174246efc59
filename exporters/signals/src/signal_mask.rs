//! The signal mask of a thread and the disposition of a signal, by libc.

#![expect(unsafe_code, reason = "sets of signals are filled through pointers")]

use std::{marker::PhantomData, mem::MaybeUninit, ptr};

use rustix::process::Signal;

/// Blocks signals in this thread until it is dropped: one that arrives meanwhile is delivered then.
#[derive(Debug)]
pub struct BlockedSignals {
    before: libc::sigset_t,
    /// Each thread has a mask of its own.
    in_this_thread: PhantomData<*const ()>,
}

impl BlockedSignals {
    /// Blocks these signals.
    pub fn block(signals: &[Signal]) -> Self {
        let (mut blocked, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: `sigemptyset` writes the whole set before it is read, and `sigaddset` accepts any number.
        // `pthread_sigmask` fails only for another first argument, and else writes the whole mask of before.
        let before = unsafe {
            libc::sigemptyset(blocked.as_mut_ptr());
            for signal in signals {
                libc::sigaddset(blocked.as_mut_ptr(), signal.as_raw());
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, blocked.as_ptr(), before.as_mut_ptr());
            before.assume_init()
        };
        Self { before, in_this_thread: PhantomData }
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        // SAFETY: the mask is the one that `pthread_sigmask` wrote, and no place for another is given.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, ptr::null_mut())
        };
    }
}

/// Whether this process ignores a signal, as `nohup` lets its program ignore SIGHUP.
pub(crate) fn is_ignored(signal: Signal) -> bool {
    let mut now = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: without another action `sigaction` only writes the present one, unless the number is no signal's.
    unsafe {
        libc::sigaction(signal.as_raw(), ptr::null(), now.as_mut_ptr()) == 0
            && now.assume_init().sa_sigaction == libc::SIG_IGN
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// The blocked signals of this thread, a bit for each.
    fn blocked_bits() -> u64 {
        let status = fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
        u64::from_str_radix(line.unwrap().trim(), 16).unwrap()
    }

    #[test]
    fn signals_are_blocked_until_the_guard_is_dropped() {
        let before = blocked_bits();
        let guard = BlockedSignals::block(&[Signal::TERM, Signal::HUP]);
        let both = (1 << (Signal::TERM.as_raw() - 1)) | (1 << (Signal::HUP.as_raw() - 1));
        assert_eq!((before & both, blocked_bits() & both), (0, both));
        drop(guard);
        assert_eq!(blocked_bits(), before);
    }

    #[test]
    fn signal_is_ignored_as_the_process_says() {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
        let ignored = u64::from_str_radix(line.trim(), 16).unwrap();
        // Programs in Rust ignore SIGPIPE.
        assert!(is_ignored(Signal::PIPE));
        for signal in [Signal::TERM, Signal::HUP, Signal::PIPE] {
            assert_eq!(is_ignored(signal), ignored & (1 << (signal.as_raw() - 1)) != 0);
        }
    }
}
