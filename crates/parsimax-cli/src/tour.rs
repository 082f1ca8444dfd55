//! `parsimax tour`: all mappings side by side on three score vectors.

use std::io::{self, IsTerminal, Write};

use parsimax::registry::{self, MAPPINGS, Options};
use parsimax::{Explanation, explain};

use crate::{Result, output};

/// The width that the table keeps to.
const WIDTH: usize = 80;

/// Three situations, and what to look at in each.
const SCENES: [Scene; 3] = [
    Scene {
        title: "A clear winner",
        remark: "Softmax pays every loser, sparsemax the winner alone.",
        scores: [2.0, 0.9, 0.6, 0.2, -0.2, -0.6, -1.0, -2.0],
    },
    Scene {
        title: "A gentle slope",
        remark: "How many of the near ties keep a share is what sets the mappings apart.",
        scores: [0.9, 0.75, 0.6, 0.5, 0.3, 0.1, -0.1, -0.4],
    },
    Scene {
        title: "Two humps with neighbouring ties",
        remark: "The structured mappings give neighbours or groups equal shares.",
        scores: [0.92, 1.0, 1.0, -0.6, -0.8, 0.8, 0.86, 0.8],
    },
];

struct Scene {
    title: &'static str,
    remark: &'static str,
    scores: [f64; 8],
}

/// Plain text or text with colours.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Style {
    Plain,
    Coloured,
}

impl Style {
    /// Colours on a terminal that can show them, unless the user has set NO_COLOR.
    pub(crate) fn of_stdout() -> Self {
        let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        if io::stdout().is_terminal() && !set("NO_COLOR") && !dumb { Self::Coloured } else { Self::Plain }
    }

    fn paint(self, code: &str, text: &str) -> String {
        match self {
            Self::Plain => text.into(),
            Self::Coloured => format!("\x1b[{code}m{text}\x1b[0m"),
        }
    }

    fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }

    fn dim(self, text: &str) -> String {
        self.paint("2", text)
    }

    fn bar(self, text: &str) -> String {
        self.paint("36", text)
    }
}

/// Prints the comparison.
pub(crate) fn run(style: Style) -> Result<()> {
    let scenes = SCENES.iter().map(|scene| Ok((scene, compare(scene)?))).collect::<Result<Vec<_>>>()?;
    output::to_stdout(|out| render(out, &scenes, style))
}

type Comparison = Vec<(&'static str, Explanation)>;

/// Every mapping of the registry, with its defaults, on the scores of a scene.
fn compare(scene: &Scene) -> Result<Comparison> {
    let explained = MAPPINGS.iter().map(|entry| {
        let mapping = registry::build(entry.name, &Options::default())?;
        let mut rows = explain(&mapping, &scene.scores, scene.scores.len())?;
        Ok(rows.pop().map(|row| (entry.name, row)))
    });
    explained.filter_map(Result::transpose).collect()
}

fn render(out: &mut dyn Write, scenes: &[(&Scene, Comparison)], style: Style) -> io::Result<()> {
    writeln!(out, "{}", style.bold("Probabilities that can be exactly zero"))?;
    writeln!(
        out,
        "{} is a small weight, {} is exactly 0. Parameters have their defaults.",
        style.bar("▏"),
        style.dim("·")
    )?;
    for (scene, comparison) in scenes {
        writeln!(out, "\n{}\n{}", style.bold(scene.title), scene.remark)?;
        table(out, scene, comparison, style)?;
    }
    writeln!(out, "\n{}", style.bold("Try next"))?;
    for (command, purpose) in [
        ("parsimax map --list", "the mappings, their parameters"),
        ("echo '1.0 0.8 0.1' | parsimax map sparsemax", "your own scores"),
        ("parsimax map entmax --alpha 1.2 --json FILE", "support, threshold, entropy"),
    ] {
        writeln!(out, "  {command:<44} {}", style.dim(purpose))?;
    }
    Ok(())
}

/// A line of scores, a line of bars for every mapping, and the scale.
fn table(out: &mut dyn Write, scene: &Scene, comparison: &Comparison, style: Style) -> io::Result<()> {
    const COUNT: &str = "nonzero";
    let names = comparison.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0).max("scores".len());
    let room = WIDTH.saturating_sub(names + 1 + COUNT.len()) / scene.scores.len();
    let cell = room.saturating_sub(1).max(5);
    let full = comparison.iter().flat_map(|(_, row)| &row.p).copied().fold(f64::MIN_POSITIVE, f64::max);
    let scores: String = scene.scores.iter().map(|z| format!(" {z:<cell$}")).collect();
    writeln!(out, "{}", style.dim(&format!("{:<names$}{scores} {COUNT}", "scores")))?;
    for (name, row) in comparison {
        write!(out, "{name:<names$}")?;
        for p in &row.p {
            let bar = bar(*p / full, cell);
            let padding = " ".repeat(cell.saturating_sub(bar.chars().count()));
            let painted = if *p == 0.0 { style.dim(&bar) } else { style.bar(&bar) };
            write!(out, " {painted}{padding}")?;
        }
        writeln!(out, " {:>width$}", row.support.len(), width = COUNT.len())?;
    }
    writeln!(out, "{}", style.dim(&format!("{:<names$} {} = {full:.2}", "", "█".repeat(cell))))
}

/// A share of 1 as a bar of `width` blocks, in eighths. Zero is a dot; every other weight at least an eighth.
fn bar(share: f64, width: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    if share == 0.0 {
        return "·".into();
    }
    let eighths = ((share * (8 * width) as f64).round() as usize).clamp(1, 8 * width);
    "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_is_not_a_small_weight() {
        assert_eq!(bar(0.0, 5), "·");
        assert_eq!(bar(1e-300, 5), "▏");
        assert_eq!(bar(0.5, 5), "██▌");
        assert_eq!(bar(1.0, 5), "█████");
    }

    #[test]
    fn the_table_fits_the_page_and_shows_every_mapping() {
        let scenes: Vec<_> = SCENES.iter().map(|scene| (scene, compare(scene).unwrap())).collect();
        let mut out = Vec::new();
        render(&mut out, &scenes, Style::Plain).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        assert!(!text.contains('\x1b'));
        for name in registry::names() {
            assert_eq!(text.lines().filter(|line| line.split(' ').next() == Some(name)).count(), 3, "{name}");
        }
    }
}
