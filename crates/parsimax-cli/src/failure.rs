//! How the program ends when it cannot do what was asked: one line, exit code 2; or 128 and the signal that stopped it.

use std::io::{self, Write};
use std::process::ExitCode;

pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// Why the program stops.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A sentence that says what is wrong and where.
    Message(String),
    /// It was asked to stop and did so in good order: a sentence, and the exit code that is usual for the signal.
    Interrupted(String, u8),
    /// The reader of our output has gone, as in `| head`: nothing is wrong.
    BrokenPipe,
}

impl Failure {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self::Message(message.into())
    }

    /// A failed read or write of `place`.
    pub(crate) fn io(place: &str, error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::BrokenPipe;
        }
        Self::Message(format!("{place}: {}", without_number(&error.to_string())))
    }

    /// Prints the line and gives the exit code.
    pub(crate) fn report(self) -> ExitCode {
        let (message, code) = match self {
            Self::Message(message) => (message, 2),
            Self::Interrupted(message, code) => (message, code),
            Self::BrokenPipe => return ExitCode::SUCCESS,
        };
        // If standard error is closed, the exit code still tells.
        let _ = writeln!(io::stderr(), "parsimax: {}", one_line(&message));
        ExitCode::from(code)
    }
}

impl From<parsimax::Error> for Failure {
    fn from(error: parsimax::Error) -> Self {
        Self::Message(error.to_string())
    }
}

impl From<parsimax_data::Error> for Failure {
    fn from(error: parsimax_data::Error) -> Self {
        Self::Message(without_number(&error.to_string()).to_owned())
    }
}

/// "No such file or directory (os error 2)": the number helps nobody.
fn without_number(message: &str) -> &str {
    message.split(" (os error").next().unwrap_or(message)
}

impl From<parsimax_linear::Error> for Failure {
    fn from(error: parsimax_linear::Error) -> Self {
        Self::Message(error.to_string())
    }
}

/// The message with line breaks and other control characters escaped: file names and fields may
/// hold any.
fn one_line(message: &str) -> String {
    message
        .chars()
        .flat_map(|c| if c.is_control() { c.escape_default().collect::<Vec<_>>() } else { vec![c] })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_line() {
        assert_eq!(one_line("a\nb\u{1b}[0m ½"), "a\\nb\\u{1b}[0m ½");
    }

    #[test]
    fn a_broken_pipe_is_no_message() {
        let error = io::Error::from(io::ErrorKind::BrokenPipe);
        assert!(matches!(Failure::io("standard output", &error), Failure::BrokenPipe));
    }

    #[test]
    fn an_io_failure_names_its_place() {
        let error = io::Error::from_raw_os_error(2);
        let Failure::Message(message) = Failure::io("scores.txt", &error) else { panic!("a message") };
        assert!(message.starts_with("scores.txt: ") && !message.contains("os error"), "{message}");
    }
}
