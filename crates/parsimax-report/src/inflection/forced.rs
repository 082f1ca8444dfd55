//! The way to the right word, with everything else that was possible at each step.

use super::{Forced, ForcedStep, heading, percent, visible};
use std::fmt::Write as _;

/// Alternatives that are named; the others are counted.
const NAMED: usize = 6;

pub(super) fn section(forced: &[Forced]) -> String {
    if forced.is_empty() {
        return "<p>There is no word to show.</p>\n".into();
    }
    let mut text = String::from(
        "<p>The model is led to the right word. A box is a step and holds every character that could come, with its \
         probability; the right one is bold. Characters that follow for certain share a box. All that is not shown \
         has a probability of exactly zero, unless a box says that there is more; a right character in a hatched box \
         was ruled out.</p>\n",
    );
    for way in forced {
        let _ = write!(text, "<article>\n{}<ol class=\"way\">\n", heading(&way.asked, Some(&way.answer)));
        groups(&way.steps).into_iter().for_each(|group| text.push_str(&group_box(group)));
        let p = if way.probability == 0.0 { "exactly 0".into() } else { percent(way.probability) };
        let _ = write!(text, "</ol>\n<p class=\"asked\">Probability of the right word: {p}</p>\n</article>\n");
    }
    text
}

/// Whether nothing else could come.
fn is_certain(step: &ForcedStep) -> bool {
    matches!(&step.next[..], [(only, _)] if *only == step.right)
}

/// Runs of certain steps, and single steps between them.
fn groups(steps: &[ForcedStep]) -> Vec<&[ForcedStep]> {
    steps.chunk_by(|a, b| is_certain(a) && is_certain(b)).collect()
}

fn character(text: Option<&String>) -> String {
    text.map_or("<i class=\"end\">end</i>".into(), |text| visible(text))
}

fn group_box(group: &[ForcedStep]) -> String {
    let [step] = group else {
        return certain(group);
    };
    if is_certain(step) {
        return certain(group);
    }
    let mut text = String::from("<li><ul>");
    if step.next.iter().all(|(character, _)| *character != step.right) {
        let _ = write!(text, "<li class=\"ruled-out\"><b>{}</b> <span>0</span></li>", character(step.right.as_ref()));
    }
    let right = |(at, entry): &(usize, &(Option<String>, f64))| *at < NAMED || entry.0 == step.right;
    for (_, (next, p)) in step.next.iter().enumerate().filter(right) {
        let (open, close) = if *next == step.right { ("<b>", "</b>") } else { ("", "") };
        let _ = write!(text, "<li>{open}{}{close} <span>{}</span></li>", character(next.as_ref()), percent(*p));
    }
    let rest: Vec<f64> = step.next.iter().skip(NAMED).filter(|(c, _)| *c != step.right).map(|(_, p)| *p).collect();
    if !rest.is_empty() {
        let _ = write!(text, "<li class=\"more\">{} more <span>{}</span></li>", rest.len(), percent(rest.iter().sum()));
    }
    text.push_str("</ul></li>\n");
    text
}

fn certain(group: &[ForcedStep]) -> String {
    let characters: Vec<String> = group.iter().map(|step| character(step.right.as_ref())).collect();
    format!("<li class=\"certain\"><b>{}</b></li>\n", characters.join(" "))
}
