//! `parsimax plot`: a figure by name, as a picture, a page or its numbers.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use parsimax::registry;
use parsimax_report::figures::{self, Entry, FIGURES};
use parsimax_report::{Error, Figure, Request, Size, Theme, render};

use crate::args::{nearest, unknown};
use crate::output::{self, Sink};
use crate::{Failure, Result};

/// The flags of `parsimax plot`.
#[derive(Args)]
#[command(after_help = "\
The ending of FILE chooses the format: svg, png, html (one page that needs no other file), json or csv (the numbers).
Parameters are given to every mapping of the figure that has them.

Examples:
  parsimax plot curves -o curves.svg
  parsimax plot family --alpha 1,1.2,1.5,2 -o family.png --scale 2
  parsimax plot simplex --scores 1.0,0.5,-0.2 -o simplex.html -o simplex.json")]
pub(crate) struct PlotArgs {
    /// The figure's name; --list shows them all
    #[arg(required_unless_present = "list")]
    name: Option<String>,
    /// Print the table of figures
    #[arg(long, exclusive = true)]
    list: bool,
    /// Write to FILE (svg, png, html, json, csv), which appears complete or not at all; '-' prints SVG. Repeatable
    #[arg(short, long, value_name = "FILE", required_unless_present = "list")]
    output: Vec<PathBuf>,
    /// Mappings to show instead of the figure's own, separated by commas
    #[arg(short, long, value_name = "NAMES", value_delimiter = ',')]
    mapping: Vec<String>,
    /// Three scores for the simplex, separated by commas
    #[arg(long, value_name = "Z", value_delimiter = ',', allow_hyphen_values = true)]
    scores: Vec<f64>,
    /// Width in pixels
    #[arg(long, value_name = "PIXELS")]
    width: Option<u32>,
    /// Height in pixels
    #[arg(long, value_name = "PIXELS")]
    height: Option<u32>,
    /// Pixels of a PNG to each pixel of the drawing
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    scale: f32,
    /// Light ink on dark paper; a page follows its reader's choice by itself
    #[arg(long)]
    dark: bool,
    /// Values of α, separated by commas: each is shown
    #[arg(long, value_name = "A", value_delimiter = ',', allow_hyphen_values = true, help_heading = HEADING)]
    alpha: Vec<f64>,
    /// Strength γ
    #[arg(long, value_name = "G", allow_hyphen_values = true, help_heading = HEADING)]
    gamma: Option<f64>,
    /// Weight λ of the structure penalty
    #[arg(long, alias = "lam", value_name = "L", allow_hyphen_values = true, help_heading = HEADING)]
    lambda: Option<f64>,
    /// Exponent p of the norm
    #[arg(long, value_name = "P", allow_hyphen_values = true, help_heading = HEADING)]
    p: Option<f64>,
    /// Mass ε of ev-softmax's training form
    #[arg(long, value_name = "E", allow_hyphen_values = true, help_heading = HEADING)]
    eps: Option<f64>,
    /// Scale q of sparsehourglass
    #[arg(long, value_name = "Q", allow_hyphen_values = true, help_heading = HEADING)]
    q: Option<f64>,
    /// Sum of a row of budget
    #[arg(long, value_name = "B", allow_hyphen_values = true, help_heading = HEADING)]
    budget: Option<f64>,
}

const HEADING: &str = "Parameters of the mappings";

/// What to do, with every choice made.
pub(crate) enum PlotConfig {
    /// Print the table of figures.
    List,
    /// Draw a figure.
    Draw(Box<Drawing>),
}

/// A figure, how it is drawn and where it goes.
pub(crate) struct Drawing {
    entry: &'static Entry,
    request: Request,
    outputs: Vec<(Sink, Format)>,
    width: Option<u32>,
    height: Option<u32>,
    scale: f32,
    dark: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Format {
    Svg,
    Png,
    Html,
    Json,
    Csv,
}

impl PlotArgs {
    pub(crate) fn resolve(self) -> Result<PlotConfig> {
        let Some(name) = self.name else { return Ok(PlotConfig::List) };
        let entry = figures::find(&name).map_err(|error| figure_unknown(&name, &error))?;
        if let Some(mapping) = self.mapping.iter().find(|mapping| registry::find(mapping).is_err()) {
            return Err(unknown(mapping));
        }
        for (flag, side) in [("--width", self.width), ("--height", self.height)] {
            within(flag, side.map(f64::from), (*Size::SIDES.start()).into(), (*Size::SIDES.end()).into())?;
        }
        within("--scale", Some(self.scale.into()), 0.25, 8.0)?;
        let outputs = self.output.into_iter().map(|path| Ok((format(&path)?, path)));
        let outputs = outputs.map(|output| output.map(|(format, path)| (Sink::new(Some(path)), format)));
        let Self { gamma, lambda, p, eps, q, budget, .. } = self;
        let options = registry::Options { alpha: None, gamma, lambda, p, eps, q, budget };
        Ok(PlotConfig::Draw(Box::new(Drawing {
            entry,
            request: Request { mappings: self.mapping, alphas: self.alpha, options, scores: self.scores },
            outputs: outputs.collect::<Result<Vec<_>>>()?,
            width: self.width,
            height: self.height,
            scale: self.scale,
            dark: self.dark,
        })))
    }
}

fn within(flag: &str, value: Option<f64>, from: f64, to: f64) -> Result<()> {
    match value {
        Some(value) if !(from..=to).contains(&value) => {
            Err(Failure::new(format!("{flag} must be from {from} to {to}, got {value}")))
        }
        _ => Ok(()),
    }
}

/// The format that the ending of a path asks for.
fn format(path: &std::path::Path) -> Result<Format> {
    if path.as_os_str() == "-" {
        return Ok(Format::Svg);
    }
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default().to_lowercase();
    match ending.as_str() {
        "svg" => Ok(Format::Svg),
        "png" => Ok(Format::Png),
        "html" | "htm" => Ok(Format::Html),
        "json" => Ok(Format::Json),
        "csv" => Ok(Format::Csv),
        _ => Err(Failure::new(format!(
            "{}: the ending chooses the format and must be svg, png, html, json or csv",
            path.display()
        ))),
    }
}

fn figure_unknown(name: &str, error: &Error) -> Failure {
    let names = figures::names();
    let hint = nearest(name, &names).map_or(String::new(), |known| format!("; did you mean '{known}'?"));
    Failure::new(error.to_string().replacen(" (known", &format!("{hint} (known"), 1))
}

/// Computes the figure, renders everything, then writes.
pub(crate) fn run(config: &PlotConfig) -> Result<()> {
    let PlotConfig::Draw(drawing) = config else { return output::to_stdout(list) };
    let figure = drawing.entry.figure(&drawing.request).map_err(|error| Failure::new(error.to_string()))?;
    let rendered = drawing.outputs.iter().map(|(_, format)| drawing.render(&figure, *format));
    let rendered = rendered.collect::<Result<Vec<_>>>()?;
    for ((sink, _), bytes) in drawing.outputs.iter().zip(rendered) {
        sink.write(|out| out.write_all(&bytes))?;
    }
    Ok(())
}

impl Drawing {
    fn render(&self, figure: &Figure, format: Format) -> Result<Vec<u8>> {
        let own = Size::of(figure);
        let size = Size { width: self.width.unwrap_or(own.width), height: self.height.unwrap_or(own.height) };
        let theme = if self.dark { Theme::dark() } else { Theme::light() };
        let svg = || render::svg(figure, &theme, size);
        Ok(match format {
            Format::Svg => svg().into_bytes(),
            Format::Png => render::png(&svg(), self.scale).map_err(|error| Failure::new(error.to_string()))?,
            Format::Html => render::figure_page(figure, self.entry.after, size).into_bytes(),
            Format::Json => render::json(figure).into_bytes(),
            Format::Csv => render::csv(figure).into_bytes(),
        })
    }
}

/// Prints the table of figures, one to a line.
fn list(out: &mut dyn Write) -> io::Result<()> {
    let head = ["NAME", "OPTIONS", "SHOWS", "AFTER"].map(String::from);
    let lines = FIGURES.iter().map(|entry| {
        let options: Vec<String> = entry.takes.iter().map(|option| format!("--{option}")).collect();
        [entry.name.into(), options.join(" "), entry.shows.into(), entry.after.into()]
    });
    output::columns(out, &std::iter::once(head).chain(lines).collect::<Vec<[String; 4]>>())
}
