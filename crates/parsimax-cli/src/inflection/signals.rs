//! Interrupts that ask a run to save and stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::{Failure, Result};

/// Whether somebody pressed Ctrl-C or asked the process to end.
pub(crate) struct Interrupt(Arc<AtomicUsize>);

impl Interrupt {
    /// Listens from now on. A second interrupt ends the process at once.
    pub(crate) fn listen() -> Result<Self> {
        let (which, again) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let register = |signal: i32| {
            // The order matters: at the first signal `again` is not set yet.
            flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&again))?;
            flag::register(signal, Arc::clone(&again))?;
            flag::register_usize(signal, Arc::clone(&which), signal as usize)
        };
        let registered = register(SIGINT).and_then(|_| register(SIGTERM));
        registered.map_err(|error| Failure::new(format!("cannot listen for Ctrl-C: {error}")))?;
        Ok(Self(which))
    }

    /// The conventional exit code, if the process was interrupted.
    pub(crate) fn code(&self) -> Option<u8> {
        match self.0.load(Ordering::Relaxed) {
            0 => None,
            signal => Some(128 + signal as u8),
        }
    }
}
