//! The regularisers themselves, over distributions (p, 1−p).

use parsimax::registry::Options;
use parsimax::{Entmax, Regularized};

use super::curves::alpha_label;
use super::subjects::{DEFAULTS, choice, subjects};
use super::{Entry, Request};
use crate::figure::spread;
use crate::{Axis, Figure, Ink, Key, Lines, Panel, Plot, Result, Series};

pub(super) const ENTRY: Entry = Entry {
    name: "entropies",
    shows: "Tsallis entropies, and −Ω of the other regularisers, of (p, 1−p)",
    after: "Peters, Niculae & Martins 2019, Eq. 9",
    takes: &["mapping"],
    build: entropies,
};

/// The height of a panel's frame in pixels, about: what the list of names is measured against.
const FRAME: f64 = 290.0;

fn entropies(request: &Request) -> Result<Figure> {
    let alphas = if request.alphas.is_empty() { vec![0.5, 1.0, 1.5, 2.0, 4.0] } else { request.alphas.clone() };
    let p = spread((0.0, 1.0), 121);
    let last = (alphas.len().max(2) - 1) as f64;
    let mut tsallis = Vec::new();
    for (rank, alpha) in alphas.iter().enumerate() {
        let ink = Ink::Order(rank as f64 / last, rank);
        tsallis.push(Series::new(&alpha_label(*alpha), ink, entropy(&Entmax::new(*alpha)?, &p)));
    }
    let own = [
        choice("normmax", Options { alpha: Some(2.0), ..DEFAULTS }),
        choice("oscarmax", Options { lambda: Some(0.2), ..DEFAULTS }),
        choice("sq-pnorm-max", Options { p: Some(1.5), ..DEFAULTS }),
        choice("sparsemax", DEFAULTS),
        choice("fusedmax", Options { lambda: Some(0.2), ..DEFAULTS }),
    ];
    // The values of α are those of the left panel.
    let all = subjects(ENTRY.name, &Request { alphas: Vec::new(), ..request.clone() }, &own)?;
    let mut others = Vec::new();
    for (kind, subject) in all.iter().enumerate() {
        others.push(Series::new(&subject.label, Ink::Kind(kind), entropy(subject.regularized(ENTRY.name)?, &p)));
    }
    Ok(Figure {
        name: ENTRY.name.into(),
        title: "Regularisers as entropies".into(),
        subtitle: "H(p, 1−p) = Ω(1, 0) − Ω(p, 1−p): how much a distribution is rewarded for being spread".into(),
        caption: "Shannon's entropy (α = 1) rises with infinite slope from the vertices, so softmax never leaves \
                  the interior; from α > 1 on the slope is finite and scores can overcome it. Structured \
                  regularisers have a kink at ½, where entries tie: that is what fuses them."
            .into(),
        columns: 2,
        panels: vec![
            panel("Tsallis entropies, α-entmax", tsallis, Key::At(0.5)),
            panel("Other regularisers", others, Key::TopLeft),
        ],
    })
}

/// Ω(e₁) − Ω(p, 1−p), which is 0 at both vertices.
fn entropy(mapping: &dyn Regularized, p: &[f64]) -> Vec<(f64, f64)> {
    let vertex = mapping.omega(&[1.0, 0.0]);
    p.iter().map(|&p| (p, vertex - mapping.omega(&[p, 1.0 - p]))).collect()
}

fn panel(title: &str, series: Vec<Series>, key: Key) -> Panel {
    let top = series.iter().flat_map(|s| &s.points).map(|point| point.1).fold(0.0, f64::max);
    let step = if top > 1.0 {
        0.5
    } else if top > 0.5 {
        0.25
    } else {
        0.1
    };
    // Room above the highest curve for its label, or for the list of names.
    let names = if key == Key::TopLeft { 18.0 * series.len() as f64 + 30.0 } else { 32.0 };
    let room = 1.0 / (1.0 - (names / FRAME).min(0.7));
    let end = (top * room).max(step);
    let ticks: Vec<f64> = (0..=(end / step) as usize).map(|i| i as f64 * step).collect();
    let y = Axis::linear("H", (-0.02 * end, end), &ticks);
    let lines = Lines { x: Axis::linear("p", (0.0, 1.0), &[0.0, 0.25, 0.5, 0.75, 1.0]), y, key, series };
    Panel { title: title.into(), plot: Plot::Lines(lines) }
}
