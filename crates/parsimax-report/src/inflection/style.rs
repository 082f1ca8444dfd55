//! The rules of the report's own parts, on top of those of every page.

use crate::Theme;
use crate::render::hex;

/// Colours as variables, in light and in dark; then everything else once.
pub(super) fn rules() -> String {
    let (light, dark) =
        (variables(&Theme::light(), "0 114 178", "#fff"), variables(&Theme::dark(), "86 180 233", "#0b0d10"));
    format!(":root {{ {light} }}\n@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n{RULES}")
}

fn variables(theme: &Theme, heat: &str, on_heat: &str) -> String {
    let [ink, paper, faint, grid, zero] = [theme.ink, theme.paper, theme.faint, theme.grid, theme.zero].map(hex);
    format!(
        "--ink: {ink}; --paper: {paper}; --faint: {faint}; --grid: {grid}; --zero: {zero}; --heat: {heat}; \
         --on-heat: {on_heat};"
    )
}

const RULES: &str = r#"body { overflow-wrap: anywhere; }
h1 { font-size: 28px; line-height: 1.2; margin: 8px 0; }
h2 { font-size: 22px; margin: 44px 0 8px; padding-top: 12px; border-top: 1px solid var(--grid); }
h3 { font-size: 17px; margin: 20px 0 0; overflow-wrap: anywhere; }
p { max-width: 46em; }
a { color: inherit; }
a:focus-visible, summary:focus-visible, .scroll:focus-visible { outline: 3px solid rgb(var(--heat)); outline-offset: 2px; }
nav ul { display: flex; flex-wrap: wrap; gap: 4px 18px; list-style: none; margin: 20px 0 0; padding: 0; }
nav a { display: inline-block; padding: 4px 0; }
footer { margin-left: 0; }
.asked, .more, .text { color: var(--faint); font-size: 14px; }
.asked { margin: 2px 0 10px; overflow-wrap: anywhere; }
.right, .wrong { font-size: 14px; font-weight: 400; color: var(--faint); white-space: normal; }
dl { margin: 16px 0; }
dt { color: var(--faint); font-size: 14px; }
dd { margin: 0; overflow-wrap: anywhere; }
.headlines { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px; }
.headlines div { display: flex; flex-direction: column-reverse; justify-content: flex-end; border: 1px solid var(--grid); border-radius: 8px; padding: 10px 12px; }
.headlines dd { font-size: 24px; font-weight: 600; line-height: 1.2; }
.settings { display: grid; grid-template-columns: repeat(auto-fit, minmax(180px, 1fr)); gap: 10px 16px; }
summary { cursor: pointer; padding: 4px 0; width: fit-content; }
.curves { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 380px), 1fr)); gap: 12px; }
.curves svg { width: 100%; }
.histograms { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 290px), 1fr)); gap: 8px 32px; }
.histograms > div { display: grid; grid-template-rows: auto auto 1fr; align-items: start; }
table { border-collapse: collapse; }
th { font-weight: 600; text-align: left; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.bars { width: 100%; }
.bars th { width: 5.2em; font-weight: 400; white-space: nowrap; }
.bars .number { width: 4em; }
.bar { display: block; height: 14px; min-width: 1px; border-radius: 2px; background: rgb(var(--heat)); }
.scroll table, .legend { overflow-wrap: normal; }
.scroll { overflow-x: auto; max-width: 100%; padding-bottom: 6px; }
.maps { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 460px), 1fr)); gap: 8px 32px; }
article { min-width: 0; break-inside: avoid; }
.map { border-collapse: separate; border-spacing: 2px; font-size: 13px; line-height: 1; }
.map td, .map th { min-width: 26px; height: 26px; padding: 0 2px; text-align: center; }
.map thead th { vertical-align: bottom; height: auto; padding-bottom: 4px; }
.map tbody th { font-size: 15px; padding-right: 6px; }
.map .letter { font-size: 15px; }
.map .tag { color: var(--faint); font-weight: 400; }
.map .tag span { writing-mode: vertical-rl; transform: rotate(180deg); white-space: nowrap; }
.map .w { border: 1.5px solid rgb(var(--heat)); border-radius: 3px; background: rgb(var(--heat) / calc(.06 + .94 * var(--w))); font-variant-numeric: tabular-nums; }
.map .s { color: var(--on-heat); }
@media (prefers-color-scheme: dark) { .map .m { color: var(--on-heat); } }
.map .z { border-radius: 3px; background: repeating-linear-gradient(135deg, var(--zero) 0 1.5px, transparent 1.5px 6px); }
.map .text { padding: 0 12px 0 4px; text-align: left; }
.legend { margin: 12px 0; }
.legend tr { display: flex; flex-wrap: wrap; gap: 2px; }
.map.legend td { display: grid; place-items: center; }
.map .w, .map .z, .bar, .ruled-out { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
.tree { display: block; font-family: inherit; }
.tree-and-words { display: flex; flex-wrap: wrap; gap: 8px 48px; align-items: center; }
.tree-and-words > .scroll { flex: 0 1 auto; }
.tree text { fill: var(--ink); }
.tree .right-word { font-weight: 600; }
.tree .label { fill: var(--faint); font-size: 14px; }
.tree .dot { fill: rgb(var(--heat)); }
.tree .branch { fill: none; stroke: rgb(var(--heat)); stroke-opacity: .55; }
.words { margin: 4px 0; }
.words td { padding: 1px 14px 1px 0; overflow-wrap: anywhere; }
.way { display: flex; flex-wrap: wrap; gap: 6px; list-style: none; margin: 8px 0; padding: 0; align-items: flex-start; }
.way > li { max-width: 100%; box-sizing: border-box; border: 1.5px solid rgb(var(--heat)); border-radius: 6px; padding: 4px 8px; }
.way > .certain { border-color: var(--grid); letter-spacing: .06em; }
.way ul { list-style: none; margin: 0; padding: 0; }
.way ul li { display: flex; justify-content: space-between; gap: 10px; padding: 0 2px; }
.way li > * { min-width: 0; }
.way span { flex: none; color: var(--faint); font-size: 13px; font-variant-numeric: tabular-nums; }
.way .ruled-out { background: repeating-linear-gradient(135deg, var(--zero) 0 1.5px, transparent 1.5px 6px); }
.end { font-size: 13px; font-weight: inherit; color: var(--faint); }
.errors { width: 100%; font-size: 15px; }
.errors th, .errors td { padding: 5px 12px 5px 0; border-bottom: 1px solid var(--grid); vertical-align: top; }
.errors .asked { max-width: 20em; min-width: 8em; }
@media print { main { max-width: none; padding: 0; } nav { display: none; } section { break-before: auto; } h2, h3 { break-after: avoid; } .scroll { overflow: visible; } figure, tr { break-inside: avoid; } body { font-size: 12px; } }
"#;
