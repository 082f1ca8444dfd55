//! The tree of all words of non-zero probability, drawn.

use super::{Asked, Kind, Tree, heading, percent, scrolling, visible};
use crate::render::{Text, escaped};
use std::fmt::Write as _;

/// Ends that are drawn one by one; what is less probable is counted.
const ENDS: usize = 16;

/// Words that the list below the picture names.
const WORDS: usize = 10;

/// Pixels: of a line, between a text and its branches, around all.
const LINE: f64 = 30.0;
const GAP: f64 = 34.0;
const MARGIN: f64 = 10.0;
const FONT: f64 = 17.0;

pub(super) fn section(trees: &[Tree]) -> String {
    if trees.is_empty() {
        return "<p>There is no word to show.</p>\n".into();
    }
    let mut text = String::from(
        "<p>Every word that the model holds possible at all; any other string has a probability of exactly zero. Thick \
         branches carry much of the probability.</p>\n",
    );
    for tree in trees {
        let best = tree.words.first().map_or("", |(word, _)| word);
        let _ = write!(text, "<article>\n{}", heading(&tree.asked, Some(best)));
        text.push_str(&scrolling(&format!("Tree of the words for {}", tree.asked.lemma), &drawing(tree)));
        let _ = write!(text, "{}<p class=\"asked\">{}</p>\n</article>\n", list(tree), standing(tree));
    }
    text
}

/// Whether this is all there is.
fn standing(tree: &Tree) -> String {
    let Tree { words, open, expansions, .. } = tree;
    let count = words.len();
    let words = if count == 1 { "word" } else { "words" };
    if *open == 0.0 {
        format!("Complete: {count} {words} and no other, by reading {expansions} beginnings.")
    } else {
        let open = percent(*open);
        format!("Gave up after {expansions} beginnings: {count} {words} were found, and {open} was not looked at.")
    }
}

fn list(tree: &Tree) -> String {
    let mut text = String::from("<table class=\"words\">\n");
    for (word, p) in tree.words.iter().take(WORDS) {
        let mark = if *word == tree.asked.form { "✓" } else { "" };
        let _ = writeln!(
            text,
            "<tr><td class=\"number\">{}</td><td lang=\"und\">{}</td><td>{mark}</td></tr>",
            percent(*p),
            escaped(word)
        );
    }
    if let Some(more) = tree.words.len().checked_sub(WORDS).filter(|more| *more > 0) {
        let rest: f64 = tree.words.iter().skip(WORDS).map(|(_, p)| p).sum();
        let _ = writeln!(text, "<tr><td class=\"number\">{}</td><td>{more} more</td><td></td></tr>", percent(rest));
    }
    text.push_str("</table>\n");
    text
}

/// A piece of text and what it branches to.
#[derive(Debug, PartialEq)]
struct Twig {
    text: String,
    probability: f64,
    end: Option<End>,
    twigs: Vec<Twig>,
}

/// How a branch ends.
#[derive(Debug, PartialEq)]
enum End {
    Word {
        is_right: bool,
    },
    /// So many beginnings that are too improbable to be drawn.
    More(usize),
    Open,
}

/// Where the twigs lie.
struct Canvas {
    body: String,
    line: usize,
    width: f64,
}

fn drawing(tree: &Tree) -> String {
    if tree.nodes.is_empty() {
        return String::new();
    }
    let twig = grow(tree, 0, String::new(), smallest(tree));
    let mut canvas = Canvas { body: String::new(), line: 0, width: 0.0 };
    place(&mut canvas, &twig, MARGIN);
    let (width, height) = (canvas.width + MARGIN, canvas.line as f64 * LINE + MARGIN);
    let Asked { lemma, form, .. } = &tree.asked;
    format!(
        "<svg class=\"tree\" width=\"{width:.0}\" height=\"{height:.0}\" viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\">\n\
         <title>{}</title>\n{}</svg>\n",
        escaped(&format!("Words of non-zero probability for {lemma}; {form} is right")),
        canvas.body
    )
}

/// The probability below which beginnings are only counted.
fn smallest(tree: &Tree) -> f64 {
    let mut ends: Vec<f64> =
        tree.nodes.iter().filter(|node| node.children.is_empty()).map(|node| node.probability).collect();
    ends.sort_by(|a, b| b.total_cmp(a));
    ends.get(ENDS - 1).copied().unwrap_or(0.0)
}

/// The twig that begins at a node: as long as there is one continuation, it is one piece.
fn grow(tree: &Tree, at: usize, before: String, smallest: f64) -> Twig {
    let node = &tree.nodes[at];
    let text = before + &visible_unescaped(&node.text);
    let probability = node.probability;
    let end = match node.kind {
        Kind::Word => Some(End::Word { is_right: is_right(tree, at) }),
        Kind::Open => Some(End::Open),
        Kind::Inner => None,
    };
    if let (None, [only]) = (&end, &node.children[..]) {
        return grow(tree, *only, text, smallest);
    }
    let (drawn, counted): (Vec<usize>, Vec<usize>) =
        node.children.iter().partition(|child| tree.nodes[**child].probability >= smallest);
    let mut twigs: Vec<Twig> = drawn.into_iter().map(|child| grow(tree, child, String::new(), smallest)).collect();
    if !counted.is_empty() {
        let probability = counted.iter().map(|child| tree.nodes[*child].probability).sum();
        twigs.push(Twig { text: String::new(), probability, end: Some(End::More(counted.len())), twigs: Vec::new() });
    }
    Twig { text, probability, end, twigs }
}

/// A letter that can be seen; it is escaped where it is written.
fn visible_unescaped(text: &str) -> String {
    if text.is_empty() {
        String::new()
    } else if text.trim().is_empty() {
        visible(text)
    } else {
        text.to_owned()
    }
}

/// Whether the word that ends at a node is the right one.
fn is_right(tree: &Tree, at: usize) -> bool {
    let mut parents = vec![None; tree.nodes.len()];
    for (parent, node) in tree.nodes.iter().enumerate() {
        node.children.iter().for_each(|child| parents[*child] = Some(parent));
    }
    let mut texts = Vec::new();
    let mut node = Some(at);
    while let Some(at) = node {
        texts.push(&tree.nodes[at].text[..]);
        node = parents[at];
    }
    texts.reverse();
    texts.concat() == tree.asked.form
}

/// Draws a twig from `x` on, its branches first; returns the height of its middle.
fn place(canvas: &mut Canvas, twig: &Twig, x: f64) -> f64 {
    let label = label(twig);
    let measured = format!("{}{}", twig.text, label);
    // Other fonts may run wider than the one that measures.
    let right = x + 1.12 * Text::plain(FONT).width(&measured) + 6.0;
    canvas.width = canvas.width.max(right);
    let mut middles = Vec::new();
    for branch in &twig.twigs {
        middles.push((place(canvas, branch, right + GAP), branch.probability));
    }
    let y = match (middles.first(), middles.last()) {
        (Some((first, _)), Some((last, _))) => (first + last) / 2.0,
        _ => {
            canvas.line += 1;
            (canvas.line as f64 - 0.5) * LINE + MARGIN / 2.0
        }
    };
    for (to, probability) in middles {
        let (from, middle) = (right, right + GAP / 2.0);
        let (end, width) = (right + GAP - 5.0, 1.0 + 7.0 * probability.sqrt());
        let _ = writeln!(
            canvas.body,
            "<path class=\"branch\" d=\"M{from:.1} {y:.1}C{middle:.1} {y:.1} {middle:.1} {to:.1} {end:.1} {to:.1}\" stroke-width=\"{width:.1}\"/>"
        );
    }
    let class = match twig.end {
        Some(End::Word { is_right: true }) => " class=\"right-word\"",
        _ => "",
    };
    let _ = writeln!(
        canvas.body,
        "<text x=\"{x:.1}\" y=\"{:.1}\" font-size=\"{FONT}\"{class}>{}<tspan class=\"label\">{}</tspan></text>",
        y + 0.35 * FONT,
        escaped(&twig.text),
        escaped(&label)
    );
    y
}

fn label(twig: &Twig) -> String {
    let p = percent(twig.probability);
    match twig.end {
        None => String::new(),
        Some(End::Word { is_right: true }) => format!("  {p} ✓"),
        Some(End::Word { is_right: false }) => format!("  {p}"),
        Some(End::More(n)) => format!("{n} more, {p}"),
        Some(End::Open) => format!("…  {p}, not looked at"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Node;
    use super::*;

    /// Figure 1 of the paper: draw → drawn, drawed, drawnn.
    fn draw() -> Tree {
        let node = |text: &str, probability, children: &[usize], kind| Node {
            text: text.into(),
            probability,
            children: children.to_vec(),
            kind,
        };
        let inner = Kind::Inner;
        let nodes = vec![
            node("", 1.0, &[1], inner),
            node("d", 1.0, &[2], inner),
            node("r", 1.0, &[3, 5], inner),
            node("n", 0.66, &[4], inner),
            node("", 0.66, &[], Kind::Word),
            node("e", 0.34, &[6], inner),
            node("d", 0.34, &[7], inner),
            node("", 0.34, &[], Kind::Word),
        ];
        let asked = Asked { form: "drn".into(), ..Asked::default() };
        let words = vec![("drn".into(), 0.66), ("dred".into(), 0.34)];
        Tree { asked, nodes, words, open: 0.0, expansions: 6 }
    }

    #[test]
    fn certain_letters_are_one_piece() {
        let twig = grow(&draw(), 0, String::new(), 0.0);
        assert_eq!((&twig.text[..], twig.end.is_none(), twig.twigs.len()), ("dr", true, 2));
        let ends: Vec<_> = twig.twigs.iter().map(|t| (&t.text[..], t.end.as_ref())).collect();
        assert_eq!(ends, [("n", Some(&End::Word { is_right: true })), ("ed", Some(&End::Word { is_right: false }))]);
    }

    #[test]
    fn what_is_too_improbable_is_counted() {
        let twig = grow(&draw(), 0, String::new(), 0.5);
        assert_eq!(twig.twigs.len(), 2);
        assert_eq!((&twig.twigs[1].end, twig.twigs[1].probability), (&Some(End::More(1)), 0.34));
    }

    #[test]
    fn an_honest_line_says_what_is_missing() {
        assert!(standing(&draw()).starts_with("Complete: 2 words"));
        let given_up = Tree { open: 0.25, ..draw() };
        assert!(standing(&given_up).contains("Gave up after 6 beginnings") && standing(&given_up).contains("25.0%"));
    }
}
