//! The binary `parsimax`: flags become a config, a config becomes one call into a library.

mod args;
mod failure;
mod inflection;
mod input;
mod map;
mod model;
mod output;
mod plot;
mod progress;
mod report;
mod reproduce;
mod tour;

use std::process::ExitCode;

use args::Config;
use failure::{Failure, Result};

fn main() -> ExitCode {
    match args::parse().and_then(run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn run(config: Config) -> Result<()> {
    match config {
        Config::Help(text) => output::to_stdout(|out| write!(out, "{text}")),
        Config::List => output::to_stdout(map::list),
        Config::Map(config) => map::run(&config),
        Config::Tour(style) => tour::run(style),
        Config::Demo(config) => inflection::demo::run(&config),
        Config::Plot(config) => plot::run(&config),
        Config::Fit(config) => model::fit(&config),
        Config::Train(config) => inflection::train(&config),
        Config::Predict(config) => model::predict(&config),
        Config::Eval(config) => model::eval(&config),
        Config::Report(config) => report::run(&config),
        Config::Reproduce(config) => reproduce::run(&config),
    }
}
