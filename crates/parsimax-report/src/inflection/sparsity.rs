//! Histograms of non-zeros.

use super::Sparsity;
use std::fmt::Write as _;

/// Larger counts share a line.
const LINES: usize = 6;

pub(super) fn section(sparsity: &Sparsity) -> String {
    let Sparsity { attention, positions, output, symbols, hypotheses, uncounted } = sparsity;
    let mut text = String::from("<div class=\"histograms\">\n");
    text.push_str(&histogram(
        "Source positions attended to in a step",
        &format!("of {positions:.1} on average"),
        attention,
        0,
    ));
    text.push_str(&histogram("Characters that may come next in a step", &format!("of {symbols}"), output, 0));
    text.push_str(&histogram(
        "Words of non-zero probability for a question",
        "counted where the beam holds all of them",
        hypotheses,
        *uncounted,
    ));
    text.push_str("</div>\n");
    text
}

/// One line for each count; what was not counted has a line of its own.
fn histogram(title: &str, note: &str, counts: &[usize], uncounted: usize) -> String {
    let total = counts.iter().sum::<usize>() + uncounted;
    let mut lines: Vec<(String, usize)> = Vec::new();
    for n in 1..LINES {
        lines.push((n.to_string(), counts.get(n).copied().unwrap_or(0)));
    }
    lines.push((format!("{LINES} or more"), counts.iter().skip(LINES).sum()));
    while uncounted == 0 && lines.last().is_some_and(|(_, count)| *count == 0) {
        lines.pop();
    }
    if uncounted > 0 {
        let counted = counts.len().saturating_sub(1).max(1);
        lines.retain(|(name, _)| name.parse::<usize>().is_ok_and(|n| n <= counted));
        lines.push(("not all".into(), uncounted));
    }
    if total == 0 {
        return format!("<div><h3>{title}</h3>\n<p class=\"asked\">nothing was counted</p></div>\n");
    }
    let mean: usize = counts.iter().enumerate().map(|(n, count)| n * count).sum();
    let mean = if uncounted == 0 { format!("mean {:.2} ", mean as f64 / total as f64) } else { String::new() };
    let mut text = format!("<div><h3>{title}</h3>\n<p class=\"asked\">{mean}{note}</p>\n<table class=\"bars\">\n");
    for (name, count) in lines {
        let share = 100.0 * count as f64 / total as f64;
        // Nothing is no bar, not a thin one.
        let bar = match count {
            0 => String::new(),
            _ => format!("<span class=\"bar\" style=\"width:{share:.1}%\"></span>"),
        };
        let _ =
            writeln!(text, "<tr><th scope=\"row\">{name}</th><td>{bar}</td><td class=\"number\">{share:.1}%</td></tr>");
    }
    text.push_str("</table></div>\n");
    text
}
