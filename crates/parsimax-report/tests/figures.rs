//! The numbers of the figures: laws that hold for each, and a snapshot of what is drawn by default.
//!
//! `PARSIMAX_SNAPSHOT=write cargo test -p parsimax-report` records `figures.snap` anew.

use std::fmt::Write as _;

use parsimax::registry::{MAPPINGS, Options};
use parsimax_report::figures::{FIGURES, find};
use parsimax_report::{Figure, Lines, Plot, Request, Series, Simplex, Surface};

fn figure(name: &str) -> Figure {
    figure_of(name, &Request::default())
}

fn figure_of(name: &str, request: &Request) -> Figure {
    find(name).and_then(|entry| entry.figure(request)).unwrap()
}

fn lines(figure: &Figure, panel: usize) -> &Lines {
    match &figure.panels[panel].plot {
        Plot::Lines(lines) => lines,
        _ => panic!("panel {panel} of {} has no curves", figure.name),
    }
}

fn simplex(figure: &Figure) -> &Simplex {
    match &figure.panels[0].plot {
        Plot::Simplex(plot) => plot,
        _ => panic!("no simplex"),
    }
}

fn surface(figure: &Figure, panel: usize) -> &Surface {
    match &figure.panels[panel].plot {
        Plot::Surface(plot) => plot,
        _ => panic!("no surface"),
    }
}

fn named<'a>(lines: &'a Lines, name: &str) -> &'a Series {
    lines.series.iter().find(|series| series.name == name).unwrap_or_else(|| panic!("no series {name}"))
}

/// The value at a point of the grid that is x up to rounding.
fn at(series: &Series, x: f64) -> f64 {
    series.points.iter().find(|point| (point.0 - x).abs() < 1e-12).unwrap_or_else(|| panic!("no point at {x}")).1
}

#[test]
fn every_mapping_has_its_panel_and_grows() {
    let figure = figure("curves");
    assert_eq!(figure.panels.len(), MAPPINGS.len());
    for (i, entry) in MAPPINGS.iter().enumerate() {
        let series = lines(&figure, i).series.last().unwrap();
        assert!(series.name.starts_with(entry.name), "{} is not {}", series.name, entry.name);
        // Rounding of one value against its neighbour.
        assert!(series.points.windows(2).all(|pair| pair[1].1 >= pair[0].1 - 1e-15), "{}", entry.name);
        // What the second entry receives at t is what the first receives at −t.
        let total = if entry.name == "budget" { 1.5 } else { 1.0 };
        for (a, b) in series.points.iter().zip(series.points.iter().rev()) {
            assert!((a.1 + b.1 - total).abs() < 1e-14, "{} at {}", entry.name, a.0);
        }
    }
}

#[test]
fn curves_reach_exactly_0_and_1_where_theory_says() {
    let request =
        Request { mappings: ["softmax", "sparsemax", "entmax15"].map(String::from).to_vec(), ..Request::default() };
    let figure = figure_of("curves", &request);
    let lines = lines(&figure, 0);
    // The grid has steps of 1/20; the first point beyond the threshold, and the last before it.
    for (name, threshold) in [("sparsemax", 1.0), ("entmax15", 2.0)] {
        let series = named(lines, name);
        assert_eq!((at(series, -threshold - 0.05), at(series, threshold + 0.05)), (0.0, 1.0), "{name}");
        assert!(at(series, -threshold + 0.05) > 0.0 && at(series, threshold - 0.05) < 1.0, "{name}");
    }
    assert!(named(lines, "softmax").points.iter().all(|point| point.1 > 0.0 && point.1 < 1.0));
    // (t + 1)/2.
    assert!((at(named(lines, "sparsemax"), 0.5) - 0.75).abs() < 1e-15);
}

#[test]
fn the_family_saturates_at_one_over_alpha_minus_one() {
    let figure = figure("family");
    let lines = lines(&figure, 0);
    for series in &lines.series {
        let alpha: f64 = series.name["α = ".len()..].split(' ').next().unwrap().parse().unwrap();
        let corner = 1.0 / (alpha - 1.0);
        for (t, p) in &series.points {
            // Half a step of the grid decides on which side of the corner a point is.
            if *t > corner + 1e-9 {
                assert_eq!(*p, 1.0, "{} at {t}", series.name);
            } else if *t < corner - 1e-9 {
                assert!(*p < 1.0, "{} at {t}", series.name);
            }
        }
    }
}

#[test]
fn the_smoothed_maximum_is_convex_and_its_slope_is_the_mapping() {
    let figure = figure("smoothed-max");
    let (maxima, gradients) = (lines(&figure, 0), lines(&figure, 1));
    for gradient in &gradients.series {
        let max = named(maxima, &gradient.name);
        for (pair, slopes) in max.points.windows(2).zip(gradient.points.windows(2)) {
            let slope = (pair[1].1 - pair[0].1) / (pair[1].0 - pair[0].0);
            // A convex function's chord lies between the slopes at its ends; 1e-12 is rounding over a step of 0.05.
            assert!(slope >= slopes[0].1 - 1e-12 && slope <= slopes[1].1 + 1e-12, "{} at {}", max.name, pair[0].0);
        }
        assert!(max.points[0].1.abs() < 0.06, "{} starts near 0", max.name);
    }
}

#[test]
fn the_sparsemax_loss_is_the_modified_huber_loss() {
    let figure = figure("losses");
    let lines = lines(&figure, 0);
    for (a, b) in named(lines, "sparsemax").points.iter().zip(&named(lines, "modified Huber").points) {
        assert!((a.1 - b.1).abs() < 1e-15, "{a:?} {b:?}");
    }
    for (t, loss) in &named(lines, "softmax = logistic").points {
        assert!((loss - (-t).exp().ln_1p()).abs() < 1e-14);
    }
    for series in &lines.series {
        assert!(series.points.windows(2).all(|pair| pair[1].1 <= pair[0].1 + 1e-15), "{}", series.name);
        let beyond = |margin: f64| series.points.iter().filter(move |point| point.0 > margin).map(|point| point.1);
        match series.name.as_str() {
            "softmax = logistic" => assert!(beyond(1.0).all(|loss| loss > 0.0)),
            "entmax, α = 1.5" => assert!(beyond(2.0).all(|loss| loss == 0.0) && at(series, 1.9) > 0.0),
            name => assert!(beyond(1.0).all(|loss| loss == 0.0), "{name}"),
        }
    }
}

#[test]
fn surfaces_are_probabilities_with_exact_plains() {
    let figure = figure("surfaces");
    for (i, panel) in figure.panels.iter().enumerate() {
        let plot = surface(&figure, i);
        let all: Vec<f64> = plot.values.iter().flatten().copied().collect();
        assert!(all.iter().all(|p| (0.0..=1.0).contains(p)), "{}", panel.title);
        let zeros = all.iter().filter(|p| **p == 0.0).count();
        assert_eq!(zeros == 0, panel.title == "softmax", "{}: {zeros} zeros", panel.title);
        // The second entry grows with its own score.
        assert!(plot.values.iter().all(|row| row.windows(2).all(|pair| pair[1] >= pair[0] - 1e-15)));
    }
}

#[test]
fn the_two_surfaces_of_sparsemax_are_the_first_entry() {
    let figure = figure("sparsemax");
    let plot = surface(&figure, 2);
    // (3, −3, 0): the first leads by 3; (0, 0, 0): a third each; (−3, …): nothing.
    assert_eq!((plot.values[24][0], plot.values[0][0]), (1.0, 0.0));
    assert!((plot.values[12][12] - 1.0 / 3.0).abs() < 1e-15);
}

#[test]
fn the_simplex_shows_the_example_of_the_literature() {
    let figure = figure("simplex");
    let plot = simplex(&figure);
    let p = |name: &str| plot.points.iter().find(|point| point.name == name).unwrap().p;
    assert_eq!(p("sparsemax"), [0.0, 1.0, 0.0]);
    assert!(p("softmax").iter().all(|p| *p > 0.0));
    // 1/(1 + e): the first two scores differ by 1.
    assert!(p("ev-softmax")[2] == 0.0 && (p("ev-softmax")[0] - 1.0 / (1.0 + 1f64.exp())).abs() < 1e-15);
    for point in &plot.points {
        assert!((point.p.iter().sum::<f64>() - 1.0).abs() < 1e-15, "{}", point.name);
    }
    let other = figure_of("simplex", &Request { scores: vec![5.0, 5.0, 5.0], ..Request::default() });
    // All ties, so all a third; the foot is the middle.
    let plot = simplex(&other);
    assert!(plot.points.iter().flat_map(|point| point.p).chain(plot.foot).all(|p| (p - 1.0 / 3.0).abs() < 1e-15));
}

#[test]
fn supports_shrink_as_scores_grow() {
    let figure = figure("sparsity");
    let lines = lines(&figure, 0);
    assert_eq!(lines.series.len(), MAPPINGS.len());
    for series in &lines.series {
        assert!(series.points.iter().all(|point| (1.0..=64.0).contains(&point.1)), "{}", series.name);
        // Sparsehourglass depends on the sum of the scores too and promises nothing.
        if series.name != "sparsehourglass" {
            assert!(series.points.windows(2).all(|pair| pair[1].1 <= pair[0].1), "{}", series.name);
        }
    }
    assert!(named(lines, "softmax").points.iter().all(|point| point.1 == 64.0));
    let few = figure_of("sparsity", &Request { mappings: vec!["sparsemax".into()], ..Request::default() });
    let Plot::Lines(few) = &few.panels[0].plot else { panic!("curves") };
    for (point, (low, high)) in few.series[0].points.iter().zip(&few.series[0].band) {
        assert!(1.0 <= *low && low <= high && *high <= 64.0, "{low}..{high}");
        // Nine tenths of the rows are at least `low`; at most a tenth exceeds `high`, and none exceeds 64.
        assert!(0.9 * low <= point.1 && point.1 <= 0.9 * high + 6.4, "{point:?} against {low}..{high}");
    }
}

#[test]
fn entropies_vanish_at_the_vertices_and_are_concave() {
    let figure = figure("entropies");
    for panel in 0..2 {
        for series in &lines(&figure, panel).series {
            let (first, last) = (series.points[0].1, series.points[120].1);
            assert!(first == 0.0 && last.abs() < 1e-15, "{}", series.name);
            for three in series.points.windows(3) {
                // 1e-15: rounding of values up to 2.
                assert!(2.0 * three[1].1 >= three[0].1 + three[2].1 - 2e-15, "{}", series.name);
            }
        }
    }
    // log 2, and ½(1 − 2·¼).
    assert!((at(named(lines(&figure, 0), "α = 1 (softmax)"), 0.5) - 2f64.ln()).abs() < 1e-15);
    assert_eq!(at(named(lines(&figure, 0), "α = 2 (sparsemax)"), 0.5), 0.25);
}

#[test]
fn requests_that_mean_nothing_are_refused() {
    let with = |options| Request { options, ..Request::default() };
    let mapping = |name: &str| Request { mappings: vec![name.into()], ..Request::default() };
    let scores = |scores: &[f64]| Request { scores: scores.to_vec(), ..Request::default() };
    let alphas = |alphas: &[f64]| Request { alphas: alphas.to_vec(), ..Request::default() };
    for (name, request, expected) in [
        ("curves", scores(&[1.0]), "curves: scores must be absent"),
        ("family", mapping("softmax"), "family: mapping must be absent"),
        ("family", alphas(&[0.0]), "alpha must be"),
        ("family", alphas(&[1.5; 13]), "at most 12"),
        ("entropies", alphas(&[f64::NAN]), "got NaN"),
        ("sparsemax", with(Options { lambda: Some(1.0), ..Options::default() }), "lambda must be absent"),
        ("losses", mapping("ev-softmax"), "regulariser"),
        ("losses", mapping("budget"), "simplex"),
        ("simplex", mapping("budget"), "sum to 1"),
        ("simplex", scores(&[1.0, f64::NAN, 0.0]), "finite numbers, got NaN"),
        ("simplex", scores(&[1.0, 2.0]), "three numbers"),
        ("curves", mapping("sparsmax"), "sparsmax"),
    ] {
        let error = find(name).unwrap().figure(&request).unwrap_err().to_string();
        assert!(error.contains(expected), "{name}: {error}");
    }
    assert!(find("curvs").unwrap_err().to_string().contains("known: curves"));
}

/// Nine points of every curve, five by five of every surface, to six digits.
fn summary() -> String {
    let mut out = String::new();
    for entry in FIGURES {
        let figure = figure(entry.name);
        writeln!(out, "# {}: {}", figure.name, figure.title).unwrap();
        for panel in &figure.panels {
            writeln!(out, "## {}", panel.title).unwrap();
            let mut row = |name: &str, values: &[f64]| {
                let values: Vec<String> = values.iter().map(|v| format!("{v:.6}")).collect();
                writeln!(out, "{name} | {}", values.join(" ")).unwrap();
            };
            match &panel.plot {
                Plot::Lines(plot) => plot.series.iter().for_each(|series| {
                    let step = (series.points.len() - 1) / 8;
                    row(&series.name, &series.points.iter().step_by(step).map(|p| p.1).collect::<Vec<_>>());
                }),
                Plot::Surface(plot) => plot.values.iter().step_by(6).for_each(|values| {
                    row("", &values.iter().step_by(6).copied().collect::<Vec<_>>());
                }),
                Plot::Simplex(plot) => plot.points.iter().for_each(|point| row(&point.name, &point.p)),
            }
        }
    }
    out
}

#[test]
fn the_snapshot_holds() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/figures.snap");
    let new = summary();
    if std::env::var_os("PARSIMAX_SNAPSHOT").is_some() {
        std::fs::write(&path, &new).unwrap();
    }
    let old = std::fs::read_to_string(&path).unwrap();
    assert_eq!(old.lines().count(), new.lines().count(), "the snapshot has other lines");
    for (old, new) in old.lines().zip(new.lines()) {
        let same = |(old, new): (&str, &str)| match (old.parse::<f64>(), new.parse::<f64>()) {
            // One unit of the last digit: a value on the edge may round either way.
            (Ok(old), Ok(new)) => (old - new).abs() < 1.5e-6,
            _ => old == new,
        };
        let equal = old.split(' ').count() == new.split(' ').count() && old.split(' ').zip(new.split(' ')).all(same);
        assert!(equal, "snapshot: {old}\nnow:      {new}");
    }
}
