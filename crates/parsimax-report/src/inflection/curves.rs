//! Learning curves.

use super::{Epoch, Report};
use crate::render::{Size, svg};
use crate::{Axis, Figure, Ink, Key, Lines, Panel, Plot, Series, Theme};

const SIZE: Size = Size { width: 480, height: 340 };

pub(super) fn section(report: &Report) -> String {
    let epochs = &report.epochs;
    if epochs.is_empty() {
        return "<p>No epoch is over yet.</p>\n".into();
    }
    let best = epochs.iter().find(|epoch| epoch.epoch == report.best_epoch);
    let best = best.map_or_else(String::new, |best| {
        format!(
            "<p>The model shown here is that of epoch {} of {}, with {:.1}% of the validation words right, decoded \
             greedily.</p>\n",
            best.epoch,
            epochs.len(),
            best.accuracy
        )
    });
    let series = |name: &str, kind, of: fn(&Epoch) -> f64| {
        let points = epochs.iter().map(|e| (e.epoch as f64, of(e))).filter(|(_, y)| y.is_finite()).collect();
        Series::new(name, Ink::Kind(kind), points)
    };
    let figures = [
        (
            "Loss of a symbol",
            "mean over training and over validation words",
            vec![series("training", 1, |e| e.train_loss), series("validation", 0, |e| e.validation_loss)],
        ),
        ("Accuracy in percent", "validation words, decoded greedily", vec![series("accuracy", 0, |e| e.accuracy)]),
        (
            "Source positions attended to",
            "mean number of non-zero weights in a step",
            vec![series("attention", 0, |e| e.attention_nonzeros)],
        ),
        (
            "Characters that may come next",
            "mean number of non-zero probabilities in a step",
            vec![series("output", 0, |e| e.output_nonzeros)],
        ),
    ];
    let drawings: String = figures.into_iter().map(|(title, subtitle, series)| draw(title, subtitle, series)).collect();
    format!("{best}<div class=\"curves\">\n{drawings}</div>\n")
}

fn draw(title: &str, subtitle: &str, series: Vec<Series>) -> String {
    let all = || series.iter().flat_map(|series| &series.points);
    let last = all().map(|point| point.0).fold(2.0, f64::max);
    let top = all().map(|point| point.1).fold(0.0, f64::max);
    let (x, y) = (ticks(1.0, last), ticks(0.0, if top > 0.0 { top } else { 1.0 }));
    let end = y.last().copied().unwrap_or(1.0).max(top);
    let key = if series.len() > 1 { Key::TopRight } else { Key::None };
    let name = title.to_lowercase().replace(' ', "-");
    let caption = all().last().map_or_else(String::new, |point| format!("{:.3} after the last epoch", point.1));
    let lines = Lines { x: Axis::linear("epoch", (1.0, last), &x), y: Axis::linear("", (0.0, end), &y), key, series };
    let (title, subtitle) = (title.to_owned(), subtitle.to_owned());
    let panels = vec![Panel { title: String::new(), plot: Plot::Lines(lines) }];
    let figure = Figure { name, title, subtitle, caption, columns: 1, panels };
    format!("<figure>\n{}</figure>\n", svg(&figure, &Theme::light(), SIZE))
}

/// Some four round numbers that reach up to `top`; the last may lie above it, unless they start at 1 and count.
fn ticks(from: f64, top: f64) -> Vec<f64> {
    let counts = from == 1.0;
    let rough = (top - from).max(1e-9) / 4.0;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().map(|m| m * power).find(|step| *step >= rough * 0.999);
    let mut step = step.unwrap_or(power);
    if counts {
        step = step.ceil();
        return std::iter::once(1.0)
            .chain((1..).map(|i| f64::from(i) * step).take_while(|t| *t <= top))
            .filter(unique())
            .collect();
    }
    let count = (top / step).ceil() as usize;
    (0..=count).map(|i| i as f64 * step).collect()
}

/// Lets a number through that is not the one before.
fn unique() -> impl FnMut(&f64) -> bool {
    let mut last = f64::NAN;
    move |t| {
        let is_new = *t != last;
        last = *t;
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_cover() {
        assert_eq!(ticks(0.0, 78.3), [0.0, 20.0, 40.0, 60.0, 80.0]);
        assert_eq!(ticks(0.0, 1.6), [0.0, 0.5, 1.0, 1.5, 2.0]);
        assert_eq!(ticks(1.0, 60.0), [1.0, 20.0, 40.0, 60.0]);
        assert_eq!(ticks(1.0, 3.0), [1.0, 2.0, 3.0]);
        for top in [1e-3, 0.7, 5.0, 33.0, 1e6] {
            let ticks = ticks(0.0, top);
            assert!(ticks.last().is_some_and(|last| *last >= top * 0.999) && ticks.len() <= 7, "{top}: {ticks:?}");
        }
    }
}
