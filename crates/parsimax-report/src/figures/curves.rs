//! Two scores (t, 0): what a mapping gives to the first, and its smoothed maximum.

use parsimax::Mapping;
use parsimax::registry::{MAPPINGS, Options};

use super::subjects::{Choice, DEFAULTS, Subject, choice, subjects};
use super::{Entry, Request};
use crate::figure::spread;
use crate::{Axis, Figure, Ink, Key, Lines, Panel, Plot, Result, Series};

/// Scores from −3 to 3 in steps of 1/20, so that 0, ±0.2, ±½, ±1 and ±2, where curves bend, are among them.
const RANGE: (f64, f64) = (-3.0, 3.0);
const COUNT: usize = 121;

pub(super) const CURVES: Entry = Entry {
    name: "curves",
    shows: "Π(t, 0)₁ of every mapping, each beside softmax",
    after: "Martins & Astudillo 2016, Fig. 1 left",
    takes: &["mapping"],
    build: curves,
};

pub(super) const FAMILY: Entry = Entry {
    name: "family",
    shows: "α-entmax(t, 0)₁ from softmax (α = 1) to sparsemax (α = 2) and beyond",
    after: "Peters, Niculae & Martins 2019, Fig. 3",
    takes: &[],
    build: family,
};

pub(super) const SMOOTHED_MAX: Entry = Entry {
    name: "smoothed-max",
    shows: "max_Ω(t, 0), its gradient Π(t, 0)₁, and the corner enlarged",
    after: "Niculae & Blondel 2017, Fig. 2",
    takes: &["mapping"],
    build: smoothed_max,
};

fn t_axis(ticks: &[f64]) -> Axis {
    Axis::linear("t", RANGE, ticks)
}

pub(super) fn p_axis(label: &str) -> Axis {
    Axis::linear(label, (-0.04, 1.04), &[0.0, 0.5, 1.0])
}

/// Π(t, 0)₁ at every t.
pub(super) fn curve(subject: &Subject, t: &[f64]) -> Result<Vec<(f64, f64)>> {
    t.iter().map(|&t| Ok((t, subject.apply(&[t, 0.0])?[0]))).collect()
}

/// The whole registry, with parameters that set mappings apart whose defaults coincide in two dimensions.
fn registry() -> Vec<Choice> {
    MAPPINGS
        .iter()
        .map(|entry| {
            let options = match entry.name {
                "entmax" => Options { alpha: Some(1.25), ..DEFAULTS },
                "fusedmax" | "oscarmax" | "oscarmax-approx" => Options { lambda: Some(0.2), ..DEFAULTS },
                "sq-pnorm-max" => Options { p: Some(1.5), ..DEFAULTS },
                "sparsehourglass" => Options { q: Some(0.5), ..DEFAULTS },
                "normmax" => Options { alpha: Some(3.0), ..DEFAULTS },
                // A budget of 2 over two entries leaves no choice.
                "budget" => Options { budget: Some(1.5), ..DEFAULTS },
                _ => DEFAULTS,
            };
            choice(entry.name, options)
        })
        .collect()
}

fn curves(request: &Request) -> Result<Figure> {
    let all = subjects(CURVES.name, request, &registry())?;
    let t = spread(RANGE, COUNT);
    let chosen = !request.mappings.is_empty();
    let panels = if chosen { vec![together(&all, &t)?] } else { apart(&all, &t)? };
    Ok(Figure {
        name: CURVES.name.into(),
        title: "What the first of two scores (t, 0) receives".into(),
        subtitle: if chosen { "Π(t, 0)₁ against t".into() } else { "Π(t, 0)₁ against t; grey is softmax".into() },
        caption: "Softmax never reaches 0 or 1. The others do, at a finite difference of the scores, and stay there: \
                  sparsemax in a straight line, entmax with smooth corners. Fusedmax and oscarmax give near ties \
                  equal shares, ev-softmax gives all to the larger of two, and a budget other than 1 is shared."
            .into(),
        columns: if chosen { 1 } else { 4 },
        panels,
    })
}

/// One panel for each mapping, with softmax for comparison.
fn apart(all: &[Subject], t: &[f64]) -> Result<Vec<Panel>> {
    let softmax = parsimax::Softmax::new();
    let softmax = Subject { name: softmax.name(), label: softmax.name().into(), mapping: Box::new(softmax) };
    let reference = curve(&softmax, t)?;
    let panel = |subject: &Subject| {
        let mut series = Vec::new();
        if subject.label != softmax.label {
            series.push(Series::new(&softmax.label, Ink::Reference, reference.clone()));
        }
        series.push(Series::new(&subject.label, Ink::Kind(0), curve(subject, t)?));
        let lines = Lines { x: t_axis(&[-2.0, 0.0, 2.0]), y: p_axis(""), key: Key::None, series };
        Ok(Panel { title: subject.label.clone(), plot: Plot::Lines(lines) })
    };
    all.iter().map(panel).collect()
}

/// All mappings in one panel.
fn together(all: &[Subject], t: &[f64]) -> Result<Panel> {
    let one = |(kind, subject): (usize, &Subject)| Ok(Series::new(&subject.label, Ink::Kind(kind), curve(subject, t)?));
    let series = all.iter().enumerate().map(one).collect::<Result<_>>()?;
    let x = t_axis(&[-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0]);
    let lines = Lines { x, y: p_axis("Π(t, 0)₁"), key: Key::TopLeft, series };
    Ok(Panel { title: String::new(), plot: Plot::Lines(lines) })
}

fn family(request: &Request) -> Result<Figure> {
    let alphas = if request.alphas.is_empty() { vec![1.0, 1.25, 1.5, 2.0, 4.0] } else { request.alphas.clone() };
    let request = Request { alphas, ..request.clone() };
    let all = subjects(FAMILY.name, &request, &[choice("entmax", DEFAULTS)])?;
    // Steps of 1/60 hit the corner of α = 4 at ⅓.
    let t = spread(RANGE, 361);
    let last = (all.len().max(2) - 1) as f64;
    let mut series = Vec::new();
    for (rank, (subject, alpha)) in all.iter().zip(&request.alphas).enumerate() {
        series.push(Series::new(&alpha_label(*alpha), Ink::Order(rank as f64 / last, rank), curve(subject, &t)?));
    }
    let lines = Lines {
        x: t_axis(&[-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0]),
        y: p_axis("α-entmax(t, 0)₁"),
        key: Key::TopLeft,
        series,
    };
    Ok(Figure {
        name: FAMILY.name.into(),
        title: "The α-entmax family".into(),
        subtitle: "pᵢ = [(α−1) zᵢ − τ]₊ to the power 1/(α−1), for two scores z = (t, 0)".into(),
        caption: "Every member but softmax saturates, at t = ±1/(α−1). Sparsemax is piecewise linear; members \
                  between it and softmax have smooth corners, members beyond it arrive with a vertical slope."
            .into(),
        columns: 1,
        panels: vec![Panel { title: String::new(), plot: Plot::Lines(lines) }],
    })
}

/// "α = 2 (sparsemax)".
pub(super) fn alpha_label(alpha: f64) -> String {
    let known = if alpha == 1.0 {
        " (softmax)"
    } else if alpha == 2.0 {
        " (sparsemax)"
    } else {
        ""
    };
    format!("α = {alpha}{known}")
}

fn smoothed_max(request: &Request) -> Result<Figure> {
    let own = [
        choice("softmax", DEFAULTS),
        choice("sparsemax", DEFAULTS),
        choice("sq-pnorm-max", Options { p: Some(1.5), ..DEFAULTS }),
        choice("fusedmax", Options { lambda: Some(0.2), ..DEFAULTS }),
    ];
    let all = subjects(SMOOTHED_MAX.name, request, &own)?;
    let t = spread(RANGE, COUNT);
    let near = spread((0.5, 1.5), COUNT);
    let relu = t.iter().map(|&t| (t, t.max(0.0))).collect();
    let mut maxima = vec![Series::new("max(t, 0)", Ink::Reference, relu)];
    let (mut gradients, mut corners) = (Vec::new(), Vec::new());
    for (kind, subject) in all.iter().enumerate() {
        let series = |points| Series::new(&subject.label, Ink::Kind(kind), points);
        maxima.push(series(maximum(subject, &t)?));
        gradients.push(series(curve(subject, &t)?));
        corners.push(series(curve(subject, &near)?));
    }
    let x = || t_axis(&[-2.0, 0.0, 2.0]);
    let y = Axis::linear("", (-0.2, 3.2), &[0.0, 1.0, 2.0, 3.0]);
    let left = Lines { x: x(), y, key: Key::TopLeft, series: maxima };
    let middle = Lines { x: x(), y: p_axis(""), key: Key::None, series: gradients };
    let zoomed = Axis::linear("t", (0.5, 1.5), &[0.5, 1.0, 1.5]);
    let y = Axis::linear("", (0.7, 1.01), &[0.7, 0.8, 0.9, 1.0]);
    let right = Lines { x: zoomed, y, key: Key::None, series: corners };
    let panel = |title: &str, lines| Panel { title: title.into(), plot: Plot::Lines(lines) };
    Ok(Figure {
        name: SMOOTHED_MAX.name.into(),
        title: "A smoothed maximum and its gradient".into(),
        subtitle: "max_Ω(z) = max over p of Σ pᵢzᵢ − γΩ(p); its gradient is Π(z); here z = (t, 0)".into(),
        caption: "Each regulariser rounds the corner of the maximum in its way; curves are shifted so that all start \
                  from 0. The gradient is the mapping: it is flat at exactly 0 and 1 wherever the smoothed maximum is \
                  straight, which softmax's never is. Sq-pnorm-max arrives at 1 more gently than sparsemax; fusedmax \
                  ties the two entries while |t| ≤ 2λ."
            .into(),
        columns: 3,
        panels: vec![
            panel("max_Ω(t, 0), up to a constant", left),
            panel("Π(t, 0)₁", middle),
            panel("Π(t, 0)₁ near its corner", right),
        ],
    })
}

/// max_Ω(t, 0) + γΩ(e₂), which is 0 where all mass is on the second entry.
fn maximum(subject: &Subject, t: &[f64]) -> Result<Vec<(f64, f64)>> {
    let mapping = subject.regularized(SMOOTHED_MAX.name)?;
    let vertex = mapping.gamma() * mapping.omega(&[0.0, 1.0]);
    let value = |&t: &f64| {
        let z = [t, 0.0];
        Ok((t, mapping.max_row(&z, &subject.apply(&z)?) + vertex))
    };
    t.iter().map(value).collect()
}
