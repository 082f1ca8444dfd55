//! How far a long command is: a bar on a terminal, a few plain lines elsewhere.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicUsize, Ordering};

use indicatif::{ProgressBar, ProgressStyle};

use crate::{Failure, Result};

/// Counts steps of a whole; safe to advance from several threads.
pub(crate) struct Progress {
    what: &'static str,
    total: usize,
    done: AtomicUsize,
    bar: Option<ProgressBar>,
}

impl Progress {
    /// Shown on standard error.
    pub(crate) fn new(what: &'static str, total: usize) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(total as u64);
            if let Ok(style) = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} {eta}") {
                bar.set_style(style);
            }
            bar.set_message(what);
            bar
        });
        Self { what, total, done: AtomicUsize::new(0), bar }
    }

    /// One step more.
    pub(crate) fn advance(&self) {
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        match &self.bar {
            Some(bar) => bar.inc(1),
            // A line at every quarter. If nobody reads it, the work goes on.
            None if done * 4 / self.total != (done - 1) * 4 / self.total => {
                let _ = writeln!(std::io::stderr(), "{}: {done}/{}", self.what, self.total);
            }
            None => {}
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Runs `work` on so many threads; on as many as there are cores if nothing is said.
pub(crate) fn on_threads<R: Send>(threads: Option<usize>, work: impl FnOnce() -> R + Send) -> Result<R> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads.unwrap_or(0)).build();
    let pool = pool.map_err(|error| Failure::new(format!("cannot start threads: {error}")))?;
    Ok(pool.install(work))
}
