//! A run while it goes on: a bar on a terminal, plain lines elsewhere.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use parsimax_models::inflection::{EpochRecord, Observer, Progress};

use super::signals::Interrupt;

/// Shows a run on standard error, and stops it when asked to or when its time is over.
pub(crate) struct Show<'a> {
    interrupt: &'a Interrupt,
    bar: Option<ProgressBar>,
    /// What is known of the last epoch.
    last: Option<EpochRecord>,
    started: Instant,
    said: Instant,
    /// Batches that were over when the run was taken up, and that are over now.
    batches: Option<(usize, usize)>,
    place: (usize, usize, usize, usize),
    limit: Option<Duration>,
}

/// Silence of a log at most.
const SILENCE: Duration = Duration::from_secs(30);

impl<'a> Show<'a> {
    /// Of a run whose last epoch was `last`.
    pub(crate) fn new(interrupt: &'a Interrupt, last: Option<EpochRecord>) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(0);
            let template = "{prefix} {wide_bar} {percent}%\n{msg}";
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
            bar
        });
        let now = Instant::now();
        Self { interrupt, bar, last, started: now, said: now, batches: None, place: (0, 0, 0, 0), limit: None }
    }

    /// Stops at the first epoch that begins after so much time.
    pub(crate) fn for_at_most(mut self, limit: Duration) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Where the run stands: "epoch 3, batch 17 of 79".
    pub(crate) fn place(&self) -> String {
        let (epoch, _, batch, batches) = self.place;
        format!("epoch {epoch}, batch {batch} of {batches}")
    }

    fn is_over(&self, progress: &Progress) -> bool {
        self.interrupt.code().is_some()
            || self
                .limit
                .is_some_and(|limit| progress.batch == 1 && progress.epoch > 1 && self.started.elapsed() >= limit)
    }

    /// Time to the end, from what was done since the run was taken up.
    fn left(&self, total: usize) -> String {
        let Some((from, to)) = self.batches.filter(|(from, to)| to > from) else { return String::new() };
        let past = self.started.elapsed();
        let seconds = past.as_secs_f64() * (total - to) as f64 / (to - from) as f64;
        // Whichever comes first: the last epoch, or the end of its time.
        let seconds = self.limit.map_or(seconds, |limit| seconds.min(limit.saturating_sub(past).as_secs_f64()));
        format!(", {} left", time(seconds))
    }

    fn message(&self, loss: f64, total: usize) -> String {
        let last = self.last.map_or(String::new(), |last| {
            let EpochRecord { accuracy, attention_nonzeros: a, output_nonzeros: o, .. } = last;
            format!(", {accuracy:.1}% right, {a:.2} attended, {o:.2} possible")
        });
        format!("loss {loss:.3}{last}{}", self.left(total))
    }

    fn say(&mut self, line: &str) {
        // If nobody reads it, the work goes on.
        let _ = writeln!(std::io::stderr(), "{line}");
        self.said = Instant::now();
    }
}

impl Observer for Show<'_> {
    fn batch(&mut self, progress: &Progress) -> bool {
        let Progress { epoch, epochs, batch, batches, loss, .. } = *progress;
        let (done, total) = ((epoch - 1) * batches + batch, epochs * batches);
        let from = self.batches.map_or(done - 1, |(from, _)| from);
        let is_first = self.batches.is_none();
        (self.batches, self.place) = (Some((from, done)), (epoch, epochs, batch, batches));
        if let Some(bar) = &self.bar {
            if is_first {
                bar.set_length(total as u64);
                bar.set_position(from as u64);
            }
            bar.set_prefix(format!("epoch {epoch}/{epochs}"));
            bar.set_message(self.message(loss, total));
            bar.set_position(done as u64);
        } else if self.said.elapsed() >= SILENCE {
            let left = self.left(total);
            self.say(&format!("epoch {epoch}/{epochs}: batch {batch}/{batches}, loss {loss:.4}{left}"));
        }
        self.is_over(progress)
    }

    fn epoch(&mut self, record: &EpochRecord) {
        self.last = Some(*record);
        if self.bar.is_none() {
            let (_, epochs, _, batches) = self.place;
            let EpochRecord { epoch, train_loss, validation_loss, accuracy, attention_nonzeros, output_nonzeros, rate } =
                *record;
            let left = self.left(epochs * batches);
            self.say(&format!(
                "epoch {epoch}/{epochs}: loss {train_loss:.4}, validation {validation_loss:.4}, {accuracy:.2}% right, \
                 {attention_nonzeros:.2} attended, {output_nonzeros:.2} possible, rate {rate}{left}"
            ));
        }
    }
}

impl Drop for Show<'_> {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Seconds for people.
pub(crate) fn time(seconds: f64) -> String {
    match seconds.round() as u64 {
        s @ 0..60 => format!("{s} s"),
        s @ 60..3600 => format!("{} min {:02} s", s / 60, s % 60),
        s => format!("{} h {:02} min", s / 3600, s % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn times_are_read_at_a_glance() {
        let spelled = [0.4, 59.0, 61.0, 3600.0, 9000.0].map(super::time);
        assert_eq!(spelled, ["0 s", "59 s", "1 min 01 s", "1 h 00 min", "2 h 30 min"]);
    }
}
