//! The tree of all words of non-zero probability, drawn.

use super::{Asked, Kind, Tree, heading, percent, scrolling, visible};
use crate::render::{Text, escaped};
use std::fmt::Write as _;

/// Ends that are drawn, the most probable ones; a line below says what the others have together.
const ENDS: usize = 10;

/// Words that the list below the picture names.
const WORDS: usize = 10;

/// Pixels: of a line, between a text and its branches, around all.
const LINE: f64 = 30.0;
const GAP: f64 = 34.0;
const MARGIN: f64 = 10.0;
const FONT: f64 = 17.0;
const DOT: f64 = 14.0;

pub(super) fn section(trees: &[Tree]) -> String {
    if trees.is_empty() {
        return "<p>There is no word to show.</p>\n".into();
    }
    let mut text = String::from(
        "<p>The words that the model holds possible at all. Where a tree is complete, any other string has a probability \
         of exactly zero. Thick branches carry much of the probability; a dot is the end of a word.</p>\n",
    );
    for tree in trees {
        let best = tree.words.first().map_or("", |(word, _)| word);
        let _ = write!(text, "<article>\n{}", heading(&tree.asked, Some(best)));
        let picture = scrolling(&format!("Tree of the words for {}", tree.asked.lemma), &drawing(tree));
        let _ = writeln!(text, "<div class=\"tree-and-words\">\n{picture}{}</div>", list(tree));
        let _ = write!(text, "<p class=\"asked\">{}</p>\n</article>\n", standing(tree));
    }
    text
}

/// Whether this is all there is.
fn standing(tree: &Tree) -> String {
    let Tree { words, open, expansions, .. } = tree;
    let count = words.len();
    let words = if count == 1 { "word" } else { "words" };
    let drawn = if count > ENDS { format!(" The {ENDS} most probable ends are drawn.") } else { String::new() };
    if *open == 0.0 {
        format!("Complete: {count} {words} and no other, by reading {expansions} beginnings.{drawn}")
    } else {
        let open = percent(*open);
        format!(
            "Gave up after {expansions} beginnings: {count} {words} were found, and {open} was not looked at.{drawn}"
        )
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
    Word { is_right: bool },
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
    let twig = grow(tree, 0, String::new(), &drawn(tree));
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

/// Which nodes lead to one of the ends that are drawn.
fn drawn(tree: &Tree) -> Vec<bool> {
    let mut ends: Vec<usize> = (0..tree.nodes.len()).filter(|at| tree.nodes[*at].children.is_empty()).collect();
    ends.sort_by(|a, b| tree.nodes[*b].probability.total_cmp(&tree.nodes[*a].probability));
    let mut is_drawn = vec![false; tree.nodes.len()];
    ends.into_iter().take(ENDS).for_each(|end| is_drawn[end] = true);
    // A child comes after its parent.
    for at in (0..tree.nodes.len()).rev() {
        is_drawn[at] |= tree.nodes[at].children.iter().any(|child| is_drawn[*child]);
    }
    is_drawn
}

/// The twig that begins at a node: as long as there is one continuation, it is one piece.
fn grow(tree: &Tree, at: usize, before: String, is_drawn: &[bool]) -> Twig {
    let node = &tree.nodes[at];
    let text = before + &visible_unescaped(&node.text);
    let end = match node.kind {
        Kind::Word => Some(End::Word { is_right: is_right(tree, at) }),
        Kind::Open => Some(End::Open),
        Kind::Inner => None,
    };
    let children: Vec<usize> = node.children.iter().copied().filter(|child| is_drawn[*child]).collect();
    if let (None, [only]) = (&end, &children[..]) {
        return grow(tree, *only, text, is_drawn);
    }
    let twigs = children.into_iter().map(|child| grow(tree, child, String::new(), is_drawn)).collect();
    Twig { text, probability: node.probability, end, twigs }
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
    // Other fonts may run wider than the one that measures.
    let width = |text: &str| if text.is_empty() { 0.0 } else { 1.12 * Text::plain(FONT).width(text) + 6.0 };
    let at = x + width(&twig.text);
    let right = at + if label.is_empty() { 0.0 } else { DOT + width(&label) };
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
    let base = y + 0.35 * FONT;
    let (class, is_end) = match twig.end {
        Some(End::Word { is_right }) => (if is_right { " class=\"right-word\"" } else { "" }, true),
        _ => ("", false),
    };
    if !twig.text.is_empty() {
        let text = escaped(&twig.text);
        let _ = writeln!(canvas.body, "<text x=\"{x:.1}\" y=\"{base:.1}\" font-size=\"{FONT}\"{class}>{text}</text>");
    }
    if is_end {
        let _ = writeln!(canvas.body, "<circle class=\"dot\" cx=\"{:.1}\" cy=\"{y:.1}\" r=\"3.5\"/>", at + DOT / 2.0);
    }
    if !label.is_empty() {
        let (x, label) = (at + DOT, escaped(&label));
        let _ = writeln!(canvas.body, "<text class=\"label\" x=\"{x:.1}\" y=\"{base:.1}\">{label}</text>");
    }
    y
}

fn label(twig: &Twig) -> String {
    let p = percent(twig.probability);
    match twig.end {
        None => String::new(),
        Some(End::Word { is_right: true }) => format!("{p} ✓"),
        Some(End::Word { is_right: false }) => p,
        Some(End::Open) => format!("… {p}, not looked at"),
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
        let twig = grow(&draw(), 0, String::new(), &drawn(&draw()));
        assert_eq!((&twig.text[..], twig.end.is_none(), twig.twigs.len()), ("dr", true, 2));
        let ends: Vec<_> = twig.twigs.iter().map(|t| (&t.text[..], t.end.as_ref())).collect();
        assert_eq!(ends, [("n", Some(&End::Word { is_right: true })), ("ed", Some(&End::Word { is_right: false }))]);
    }

    #[test]
    fn what_leads_to_no_drawn_end_is_left_out() {
        let only_regular = [true, true, true, false, false, true, true, true];
        let twig = grow(&draw(), 0, String::new(), &only_regular);
        assert_eq!((&twig.text[..], twig.probability, twig.twigs.len()), ("dred", 0.34, 0));
    }

    #[test]
    fn the_most_probable_ends_are_drawn() {
        // A fan of twice as many words as are drawn, the later the more probable.
        let node = |i: usize| Node { text: "x".into(), probability: i as f64, children: Vec::new(), kind: Kind::Word };
        let mut nodes: Vec<Node> = (0..=2 * ENDS).map(node).collect();
        nodes[0] = Node { children: (1..=2 * ENDS).collect(), kind: Kind::Inner, ..nodes[0].clone() };
        let is_drawn = drawn(&Tree { nodes, ..Tree::default() });
        assert!(is_drawn[0] && is_drawn[1..=ENDS].iter().all(|d| !d) && is_drawn[ENDS + 1..].iter().all(|d| *d));
    }

    #[test]
    fn an_honest_line_says_what_is_missing() {
        assert!(standing(&draw()).starts_with("Complete: 2 words"));
        let given_up = Tree { open: 0.25, ..draw() };
        assert!(standing(&given_up).contains("Gave up after 6 beginnings") && standing(&given_up).contains("25.0%"));
    }
}
