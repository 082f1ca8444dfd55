//! The page about a run: what it holds, and how a browser takes it.

use parsimax_report::inflection::{
    Asked, AttentionMap, Epoch, Forced, ForcedStep, Kind, Mistake, Node, Report, Sparsity, Tree, page,
};
use std::path::Path;
use std::process::Command;

/// A word that would break out of any place where it is not escaped.
const HOSTILE: &str = "\"><script>alert(1)</script><img src=x onerror=alert(2)>&amp;'";

fn asked(lemma: &str, form: &str) -> Asked {
    let tags = ["V", "V.PTCP", "PST"].map(str::to_owned).to_vec();
    Asked { language: "english".into(), lemma: lemma.into(), tags, form: form.into() }
}

/// Figure 1 of the sparse sequence-to-sequence paper.
fn tree(lemma: &str) -> Tree {
    let node = |text: &str, probability, children: &[usize], kind| {
        let (text, children) = (text.to_owned(), children.to_vec());
        Node { text, probability, children, kind }
    };
    let nodes = vec![
        node("", 1.0, &[1], Kind::Inner),
        node("draw", 1.0, &[2, 4], Kind::Inner),
        node("n", 0.664, &[3], Kind::Inner),
        node("", 0.664, &[], Kind::Word),
        node("ed", 0.336, &[5, 6], Kind::Inner),
        node("", 0.322, &[], Kind::Word),
        node(HOSTILE, 0.014, &[], Kind::Open),
    ];
    let words = vec![("drawn".into(), 0.664), ("drawed".into(), 0.322)];
    Tree { asked: asked(lemma, "drawn"), nodes, words, open: 0.014, expansions: 5 }
}

fn sample() -> Report {
    let epoch = |epoch: usize| {
        let t = epoch as f64;
        let (train_loss, validation_loss) = (3.0 / t, 3.2 / t);
        let (attention_nonzeros, output_nonzeros) = (1.0 + 4.0 / t, 1.0 + 9.0 / t);
        Epoch { epoch, train_loss, validation_loss, accuracy: 90.0 - 90.0 / t, attention_nonzeros, output_nonzeros }
    };
    let positions: Vec<String> =
        ["english", "V", "V.PTCP", "PST", "d", "r", "a", "w", HOSTILE].map(str::to_owned).into();
    let weights =
        |at: usize| (0..9).map(|i| [0.75, 0.247, 0.003].get((i + 9 - at) % 9).copied().unwrap_or(0.0)).collect();
    let rows =
        ["d", "r", "a", "w", "n", "end"].iter().enumerate().map(|(i, c)| ((*c).to_owned(), weights(i))).collect();
    let step = |right: Option<&str>, next: &[(Option<&str>, f64)]| ForcedStep {
        right: right.map(str::to_owned),
        next: next.iter().map(|(c, p)| (c.map(str::to_owned), *p)).collect(),
    };
    let steps = vec![
        step(Some("d"), &[(Some("d"), 1.0)]),
        step(Some("r"), &[(Some("r"), 1.0)]),
        step(Some("n"), &[(Some(HOSTILE), 0.7), (Some("e"), 0.3)]),
        step(None, &[(None, 0.9), (Some(" "), 0.1)]),
    ];
    let mistake = Mistake {
        asked: asked(HOSTILE, "drawn"),
        answer: HOSTILE.repeat(2),
        probability: 0.9999,
        right_probability: 0.0,
        distance: 3,
        certificate: "cover, bound",
    };
    let map = AttentionMap { asked: asked("draw", "drawn"), answer: "drawn".into(), positions, tags: 4, rows };
    Report {
        title: HOSTILE.into(),
        subtitle: HOSTILE.into(),
        settings: vec![("size".into(), "128".into()), (HOSTILE.into(), HOSTILE.into())],
        headlines: vec![("78.0%".into(), "of 1000 validation words right".into())],
        epochs: (1..=30).map(epoch).collect(),
        best_epoch: 30,
        sparsity: Sparsity {
            attention: vec![0, 700, 200, 50, 20, 5, 2, 1],
            positions: 14.6,
            output: vec![0, 900, 80],
            symbols: 83,
            hypotheses: vec![0, 60, 20, 5],
            uncounted: 15,
        },
        maps: vec![map.clone(), AttentionMap { asked: asked(HOSTILE, HOSTILE), ..map }],
        trees: vec![tree("draw"), tree(HOSTILE)],
        forced: vec![Forced { asked: asked("draw", "drn"), answer: "dren".into(), steps, probability: 0.0 }],
        errors: vec![mistake],
        wrong: (1, 1000),
    }
}

#[test]
fn the_page_is_one_file_and_says_what_it_was_given() {
    let html = page(&sample());
    assert!(html.starts_with("<!DOCTYPE html>") && html.contains("prefers-color-scheme: dark"));
    for forbidden in ["<script", "<img", "<link", "@import", "url(", "src=\"", "javascript:"] {
        assert!(!html.contains(forbidden), "{forbidden}");
    }
    // The namespace of SVG is a name, not a place.
    assert_eq!(html.matches("://").count(), html.matches("http://www.w3.org/2000/svg").count());
    for expected in [
        "78.0%",
        "66.4% ✓",
        "32.2%",
        "Gave up after 5 beginnings",
        "Probability of the right word: exactly 0",
        "class=\"ruled-out\"",
        "1 of 1000 words are wrong",
        "cover, bound",
        "Loss of a symbol",
    ] {
        assert!(html.contains(expected), "{expected}");
    }
}

#[test]
fn an_exact_zero_is_another_cell_than_a_small_weight() {
    let html = page(&sample());
    let map = html.split("<table class=\"map\">").nth(1).and_then(|rest| rest.split("</table>").next()).expect("a map");
    // Six rows of nine positions, three of them with a weight.
    assert_eq!(map.matches("<td class=\"z\"></td>").count(), 6 * 6);
    assert_eq!(map.matches("<td class=\"w").count(), 6 * 3);
    assert_eq!(map.matches(">·</td>").count(), 6, "0.3% is a dot, not nothing");
}

#[test]
fn nothing_to_show_is_said() {
    let html = page(&Report { wrong: (0, 5), ..Report::default() });
    for expected in ["No epoch is over yet", "There is no word to show", "None of 5 words was wrong"] {
        assert!(html.contains(expected), "{expected}");
    }
}

#[test]
fn numbers_that_are_none_do_not_break_a_curve() {
    let mut report = sample();
    report.epochs[3].train_loss = f64::NAN;
    report.epochs[5].validation_loss = f64::INFINITY;
    let html = page(&report);
    assert!(!html.contains("NaN") && !html.contains("inf,") && !html.contains(" inf"));
}

/// The browser of Debian, or nothing.
fn chromium(arguments: &[&str]) -> Option<(String, String)> {
    let output = Command::new("chromium").args(arguments).output().ok()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Some((text(&output.stdout), text(&output.stderr)))
}

/// Shows a page in frames of several widths and tells of each: width of the content, elements that must not be there,
/// files that were fetched.
fn harness(html: &str) -> String {
    let page = html.replace('&', "&amp;").replace('"', "&quot;");
    let frames: String = [360, 800, 1280]
        .map(|width| format!("<iframe width=\"{width}\" height=\"900\" srcdoc=\"{page}\"></iframe>"))
        .concat();
    format!(
        "<!DOCTYPE html><meta charset=\"utf-8\"><body>{frames}<pre id=\"told\"></pre><script>\n\
         addEventListener('load', () => {{\n\
           document.getElementById('told').textContent = [...document.querySelectorAll('iframe')].map(frame => {{\n\
             const page = frame.contentDocument, root = page.documentElement;\n\
             const foreign = page.querySelectorAll('script, img, link, iframe').length;\n\
             const fetched = frame.contentWindow.performance.getEntriesByType('resource').length;\n\
             return ['told', frame.width, root.scrollWidth - root.clientWidth, foreign, fetched,\n\
               page.querySelectorAll('section').length].join(' ');\n\
           }}).join('\\n');\n\
         }});</script></body>"
    )
}

#[test]
fn a_browser_shows_the_page_without_a_complaint() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("harness.html");
    std::fs::write(&path, harness(&page(&sample()))).expect("writes");
    let profile = format!("--user-data-dir={}", folder.path().join("profile").display());
    let address = format!("file://{}", Path::new(&path).display());
    let arguments = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--enable-logging=stderr",
        "--virtual-time-budget=4000",
        &profile,
        "--dump-dom",
        &address,
    ];
    let Some((dom, log)) = chromium(&arguments) else {
        eprintln!("skipped: there is no chromium here (on Debian: apt install chromium)");
        return;
    };
    let told: Vec<&str> = dom.lines().filter_map(|line| line.find("told ").map(|at| &line[at..])).collect();
    let expected = [360, 800, 1280].map(|width| format!("told {width} 0 0 0 6"));
    assert_eq!(told.len(), 3, "{dom}\n{log}");
    for (told, expected) in told.iter().zip(&expected) {
        assert!(
            told.starts_with(&expected[..]),
            "told {told}; expected {expected}: width, overflow, foreign, fetched, sections"
        );
    }
    assert!(!log.contains("CONSOLE"), "{log}");
}
