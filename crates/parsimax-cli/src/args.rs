//! What the user typed, and the checked config that it resolves to.

use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand};
use parsimax::Mapping;
use parsimax::registry::{self, Entry, Options};

use crate::inflection::args::{TrainArgs, TrainConfig};
use crate::inflection::demo::{DemoArgs, DemoConfig};
use crate::input::Source;
use crate::model::args::{EvalArgs, EvalConfig, FitArgs, FitConfig, PredictArgs, PredictConfig};
use crate::output::{Format, Sink};
use crate::plot::{PlotArgs, PlotConfig};
use crate::report::{ReportArgs, ReportConfig};
use crate::reproduce::{ReproduceArgs, ReproduceConfig};
use crate::tour::Style;
use crate::{Failure, Result};

/// What to do, with every choice made.
pub(crate) enum Config {
    /// Print a help or version text.
    Help(String),
    /// Print the table of mappings.
    List,
    /// Map rows of scores.
    Map(MapConfig),
    /// Compare all mappings.
    Tour(Style),
    /// Train a small model on embedded words and show what it can do.
    Demo(DemoConfig),
    /// Draw a figure.
    Plot(PlotConfig),
    /// Fit a linear model.
    Fit(Box<FitConfig>),
    /// Train a model on sequences.
    Train(TrainConfig),
    /// Apply a model.
    Predict(Box<PredictConfig>),
    /// Judge a model.
    Eval(EvalConfig),
    /// Show a run as a page.
    Report(ReportConfig),
    /// Repeat an experiment of a paper.
    Reproduce(ReproduceConfig),
}

/// A mapping, where its scores come from and where its probabilities go.
pub(crate) struct MapConfig {
    pub(crate) mapping: Box<dyn Mapping>,
    pub(crate) source: Source,
    pub(crate) sink: Sink,
    pub(crate) format: Format,
}

/// Sparse probability: mappings from scores to probabilities that can be exactly zero.
#[derive(Parser)]
#[command(name = "parsimax", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Map rows of scores to probabilities
    Map(MapArgs),
    /// Train a small model for a minute and show what it can do
    Demo(DemoArgs),
    /// Compare all mappings on three score vectors
    Tour,
    /// Draw a figure: curves, surfaces, losses, the simplex
    Plot(PlotArgs),
    /// Fit a linear model to a file of labelled rows
    Fit(Box<FitArgs>),
    /// Train a sequence-to-sequence model
    Train(TrainArgs),
    /// Predict labels of rows, or forms of words
    Predict(Box<PredictArgs>),
    /// Judge a model on labelled rows, or on words
    Eval(EvalArgs),
    /// Show a run as a page: curves, attention, all possible words, errors
    Report(ReportArgs),
    /// Repeat an experiment of a paper and write its table
    Reproduce(ReproduceArgs),
}

#[derive(Args)]
#[command(after_help = "\
A row is a line of numbers separated by spaces, tabs or commas; '-inf' masks an entry; blank lines
and what follows a '#' are skipped. NumPy's .npy files are recognised by their first bytes.

Examples:
  echo '1.0 0.8 0.1' | parsimax map sparsemax
  parsimax map entmax --alpha 1.3 --json scores.npy")]
struct MapArgs {
    /// The mapping's name; --list shows them all
    #[arg(required_unless_present = "list")]
    name: Option<String>,
    /// File of scores; '-' or nothing is standard input
    file: Option<PathBuf>,
    /// Print the table of mappings
    #[arg(long, exclusive = true)]
    list: bool,
    /// Write one JSON object per row: p, support, tau, entropy
    #[arg(long)]
    json: bool,
    /// Write to FILE, which appears complete or not at all
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    parameters: Parameters,
}

/// The parameters of the registry, each of which only some mappings take.
#[derive(Args)]
#[command(next_help_heading = "Parameters of the mapping")]
pub(crate) struct Parameters {
    /// Shape α of the regulariser
    #[arg(long, value_name = "A", allow_negative_numbers = true)]
    alpha: Option<f64>,
    /// Strength γ: small is sparse, large is flat
    #[arg(long, value_name = "G", allow_negative_numbers = true)]
    gamma: Option<f64>,
    /// Weight λ of the structure penalty
    #[arg(long, value_name = "L", allow_negative_numbers = true)]
    lambda: Option<f64>,
    /// Exponent p of the norm
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    p: Option<f64>,
    /// Mass ε that keeps every entry positive during training
    #[arg(long, value_name = "E", allow_negative_numbers = true)]
    eps: Option<f64>,
    /// Scale q between scale invariance (0) and sparsemax (large)
    #[arg(long, value_name = "Q", allow_negative_numbers = true)]
    q: Option<f64>,
    /// Sum of a row
    #[arg(long, value_name = "B", allow_negative_numbers = true)]
    budget: Option<f64>,
}

/// Reads the command line.
pub(crate) fn parse() -> Result<Config> {
    parse_from(std::env::args_os())
}

fn parse_from<T: Into<std::ffi::OsString> + Clone>(words: impl IntoIterator<Item = T>) -> Result<Config> {
    match Cli::try_parse_from(words) {
        Ok(Cli { command: Command::Demo(args) }) => args.resolve().map(Config::Demo),
        Ok(Cli { command: Command::Tour }) => Ok(Config::Tour(Style::of_stdout())),
        Ok(Cli { command: Command::Map(args) }) => args.resolve(),
        Ok(Cli { command: Command::Plot(args) }) => args.resolve().map(Config::Plot),
        Ok(Cli { command: Command::Fit(args) }) => Ok(Config::Fit(Box::new(args.resolve()?))),
        Ok(Cli { command: Command::Train(args) }) => args.resolve().map(Config::Train),
        Ok(Cli { command: Command::Predict(args) }) => Ok(Config::Predict(Box::new(args.resolve()))),
        Ok(Cli { command: Command::Eval(args) }) => Ok(Config::Eval(args.resolve())),
        Ok(Cli { command: Command::Report(args) }) => Ok(Config::Report(args.resolve())),
        Ok(Cli { command: Command::Reproduce(args) }) => Ok(Config::Reproduce(args.resolve())),
        Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            Ok(Config::Help(error.to_string()))
        }
        Err(error) => Err(Failure::new(sentence(&error))),
    }
}

impl MapArgs {
    fn resolve(self) -> Result<Config> {
        let Some(name) = self.name else { return Ok(Config::List) };
        let entry = registry::find(&name).map_err(|_| unknown(&name))?;
        Ok(Config::Map(MapConfig {
            mapping: registry::build(entry.name, &self.parameters.resolve(entry)?)?,
            source: Source::new(self.file),
            sink: Sink::new(self.output),
            format: if self.json { Format::Json } else { Format::Text },
        }))
    }
}

impl Parameters {
    /// The parameters that were given, by name.
    pub(crate) fn given(&self) -> impl Iterator<Item = (&'static str, f64)> {
        let Self { alpha, gamma, lambda, p, eps, q, budget } = self;
        let all = [
            ("alpha", *alpha),
            ("gamma", *gamma),
            ("lambda", *lambda),
            ("p", *p),
            ("eps", *eps),
            ("q", *q),
            ("budget", *budget),
        ];
        all.into_iter().filter_map(|(name, value)| value.map(|value| (name, value)))
    }

    fn resolve(self, entry: &Entry) -> Result<Options> {
        if let Some((name, _)) = self.given().find(|(name, _)| !entry.takes.contains(name)) {
            let takes = flags(entry);
            let takes = if takes.is_empty() { "no parameters".into() } else { takes };
            return Err(Failure::new(format!("--{name} does not apply to {}, which takes {takes}", entry.name)));
        }

        let Self { alpha, gamma, lambda, p, eps, q, budget } = self;
        Ok(Options { alpha, gamma, lambda, p, eps, q, budget })
    }
}

/// The flags of a mapping, as in "--alpha --gamma".
pub(crate) fn flags(entry: &Entry) -> String {
    entry.takes.iter().map(|name| format!("--{name}")).collect::<Vec<_>>().join(" ")
}

/// The failure for a name that the registry does not know.
pub(crate) fn unknown(name: &str) -> Failure {
    let names = registry::names();
    let hint = nearest(name, &names).map_or(String::new(), |known| format!("; did you mean '{known}'?"));
    Failure::new(format!("unknown mapping '{name}'{hint} (known: {})", names.join(", ")))
}

/// The known name that a misspelt one probably means.
pub(crate) fn nearest(name: &str, known: &[&'static str]) -> Option<&'static str> {
    let distances = known.iter().map(|known| (strsim::damerau_levenshtein(name, known), *known));
    distances.min().filter(|(distance, known)| *distance <= known.len() / 2).map(|(_, known)| known)
}

/// A complaint of the parser as one sentence, without its usage text.
fn sentence(error: &clap::Error) -> String {
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return "a command is missing, such as map, demo or fit (see parsimax --help)".into();
    }
    let text = error.to_string();
    let lines = text.lines().map(str::trim);
    let words: Vec<&str> =
        lines.take_while(|line| !line.starts_with("Usage:")).filter(|line| !line.is_empty()).collect();
    let words = words.join(" ");
    let words = words.split(" For more information").next().unwrap_or(&words);
    format!("{} (see parsimax --help)", words.trim_start_matches("error: "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(line: &str) -> String {
        match parse_from(line.split(' ')) {
            Err(Failure::Message(message)) => message,
            _ => panic!("'{line}' must fail"),
        }
    }

    #[test]
    fn the_parser_is_consistent() {
        <Cli as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn every_option_of_the_registry_has_a_flag() {
        use clap::CommandFactory;
        let command = Cli::command();
        let map = command.find_subcommand("map").unwrap();
        for name in registry::MAPPINGS.iter().flat_map(|entry| entry.takes) {
            assert!(map.get_arguments().any(|arg| arg.get_long() == Some(name)), "--{name}");
        }
    }

    #[test]
    fn complaints_are_one_sentence() {
        for line in [
            "parsimax",
            "parsimax map",
            "parsimax frobnicate",
            "parsimax map softmax --alfa 2",
            "parsimax map softmax --gamma",
            "parsimax map softmax --gamma two",
            "parsimax map softmax a b",
            "parsimax map --list softmax",
            "parsimax demo now",
            "parsimax tour now",
            "parsimax train",
            "parsimax train inflection",
            "parsimax train inflection --size two",
            "parsimax predict",
        ] {
            let message = failure(line);
            assert!(!message.contains('\n') && !message.contains("Usage"), "{line}: {message}");
            assert!(!message.starts_with("error"), "{line}: {message}");
        }
    }

    #[test]
    fn unknown_names_are_answered_with_the_nearest() {
        assert!(failure("parsimax map sparsmax").contains("did you mean 'sparsemax'?"));
        let far = failure("parsimax map xyzzyxyzzyxyzzy");
        assert!(!far.contains("did you mean") && registry::names().iter().all(|name| far.contains(name)));
    }

    #[test]
    fn parameters_reach_the_mapping() {
        assert!(matches!(parse_from(["parsimax", "map", "entmax", "--alpha", "1.3"]), Ok(Config::Map(_))));
        assert!(failure("parsimax map entmax --alpha -1").contains("alpha must be"));
        assert!(failure("parsimax map entmax --alpha nan").contains("alpha must be"));
        assert_eq!(
            failure("parsimax map softmax --alpha 1.3"),
            "--alpha does not apply to softmax, which takes --gamma"
        );
    }
}
