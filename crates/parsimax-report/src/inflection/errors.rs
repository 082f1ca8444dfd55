//! Wrong answers, the surest first.

use super::{Mistake, percent, scrolling};
use crate::render::escaped;
use std::fmt::Write as _;

pub(super) fn section(errors: &[Mistake], (wrong, words): (usize, usize)) -> String {
    if errors.is_empty() {
        return format!("<p>None of {words} words was wrong.</p>\n");
    }
    let mut table = String::from(
        "<table class=\"errors\">\n<thead><tr><th scope=\"col\">lemma</th><th scope=\"col\">asked</th>\
         <th scope=\"col\">right</th><th scope=\"col\">answered</th><th scope=\"col\" class=\"number\">p(answer)</th>\
         <th scope=\"col\" class=\"number\">p(right)</th><th scope=\"col\" class=\"number\">edits</th>\
         <th scope=\"col\">certificate</th></tr></thead>\n<tbody>\n",
    );
    for Mistake { asked, answer, probability, right_probability, distance, certificate } in errors {
        let _ = writeln!(
            table,
            "<tr><td lang=\"und\">{}</td><td class=\"asked\">{} · {}</td><td lang=\"und\">{}</td><td lang=\"und\">{}</td>\
             <td class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"number\">{distance}</td>\
             <td>{certificate}</td></tr>",
            escaped(&asked.lemma),
            escaped(&asked.language),
            escaped(&asked.tags.join(";")),
            escaped(&asked.form),
            escaped(answer),
            percent(*probability),
            percent(*right_probability),
        );
    }
    table.push_str("</tbody></table>\n");
    format!(
        "<p>{wrong} of {words} words are wrong; these are the {} of which the model was surest. A probability of 0 is \
         exactly that: the model ruled the right word out. Cover means that the beam held every word of non-zero \
         probability; bound, that no other word can be more probable: the search is not to blame.</p>\n{}",
        errors.len(),
        scrolling("Worst errors", &table)
    )
}
