//! Attention maps, in which an exact zero is another thing than a small weight.

use super::{AttentionMap, heading, scrolling, visible};
use crate::render::escaped;
use std::fmt::Write as _;

pub(super) fn section(maps: &[AttentionMap]) -> String {
    if maps.is_empty() {
        return "<p>There is no word to show.</p>\n".into();
    }
    let mut text = String::from(
        "<p>Each row is a step: the character that was written, and the weights of the source positions, in percent. \
         Outlined cells have a weight above zero, however small; hatched ones have exactly none.</p>\n\
         <table class=\"map legend\" aria-hidden=\"true\"><tr><td class=\"z\"></td><td class=\"text\">exactly 0</td>\
         <td class=\"w\" style=\"--w:.004\">·</td><td class=\"text\">below 1</td>\
         <td class=\"w\" style=\"--w:.25\">25</td><td class=\"w\" style=\"--w:.6\">60</td>\
         <td class=\"w s\" style=\"--w:1\">100</td><td class=\"text\">percent</td></tr></table>\n\
         <div class=\"maps\">\n",
    );
    maps.iter().for_each(|map| text.push_str(&article(map)));
    text.push_str("</div>\n");
    text
}

fn article(map: &AttentionMap) -> String {
    let mut table = String::from("<table class=\"map\">\n<thead><tr><td></td>");
    for (i, name) in map.positions.iter().enumerate() {
        let class = if i < map.tags { "tag" } else { "letter" };
        let _ = write!(table, "<th scope=\"col\" class=\"{class}\"><span>{}</span></th>", visible(name));
    }
    table.push_str("</tr></thead>\n<tbody>\n");
    for (written, weights) in &map.rows {
        let _ = write!(table, "<tr><th scope=\"row\">{}</th>", visible(written));
        weights.iter().zip(&map.positions).for_each(|(weight, name)| table.push_str(&cell(*weight, name)));
        table.push_str("</tr>\n");
    }
    table.push_str("</tbody></table>\n");
    let label = format!("Attention while writing {}", map.answer);
    format!("<article>\n{}{}</article>\n", heading(&map.asked, Some(&map.answer)), scrolling(&label, &table))
}

fn cell(weight: f32, position: &str) -> String {
    if weight == 0.0 {
        return "<td class=\"z\"></td>".into();
    }
    let percent = 100.0 * weight;
    // A weight that rounds to nothing is a dot, not a zero.
    let shown = if percent < 0.95 { "·".into() } else { format!("{percent:.0}") };
    // Where the shade is strong, the number takes the colour of the paper: in dark pages sooner than in light ones.
    let strong = match weight {
        w if w >= 0.85 => " s",
        w if w >= 0.7 => " m",
        _ => "",
    };
    format!(
        "<td class=\"w{strong}\" style=\"--w:{weight:.3}\" title=\"{}: {percent:.2}%\">{shown}</td>",
        escaped(position)
    )
}
