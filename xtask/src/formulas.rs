//! Formulas in documentation comments, and what Markdown would do to them.
//!
//! Rustdoc reads `$…$` as ordinary Markdown before KaTeX sees it: a backslash before punctuation is
//! dropped (`\,` becomes a comma, `\{` a brace that groups), and a pair of stars or of underscores
//! after brackets (`[x]_+ - [y]_+`) becomes emphasis. In a code span nothing is touched, and the pages
//! render a code span whose content is `$…$`. So such a formula is written `` `$a\,b$` ``; `check`
//! finds those that are not, and `repair` puts them there.

use std::fs;
use std::path::{Path, PathBuf};

use crate::shell::{Outcome, root};

/// Fails with a line for every formula that Markdown would break.
pub(crate) fn check() -> Outcome<()> {
    let mut problems = Vec::new();
    for file in sources()? {
        let found = formulas(&read(&file)?)
            .into_iter()
            .flat_map(|formula| formula.problems.into_iter().map(move |problem| (formula.start.0, problem)));
        let name = file.strip_prefix(root()).unwrap_or(&file).display().to_string();
        problems.extend(found.map(|(line, problem)| format!("{name}:{}: {problem}", line + 1)));
    }
    if problems.is_empty() {
        return Ok(());
    }
    Err(format!("{}\n`cargo xtask docs` puts such formulas in backticks", problems.join("\n")))
}

/// Puts formulas that Markdown would break in backticks; gives the files that changed.
pub(crate) fn repair() -> Outcome<Vec<PathBuf>> {
    let mut changed = Vec::new();
    for file in sources()? {
        let old = read(&file)?;
        let new = in_backticks(&old);
        if new != old {
            fs::write(&file, new).map_err(|error| format!("{}: {error}", file.display()))?;
            changed.push(file);
        }
    }
    Ok(changed)
}

/// The Rust sources of all crates.
fn sources() -> Outcome<Vec<PathBuf>> {
    let mut files = Vec::new();
    collect(&root().join("crates"), &mut files)?;
    files.sort();
    Ok(files)
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) -> Outcome<()> {
    let problem = |error: std::io::Error| format!("{}: {error}", directory.display());
    for entry in fs::read_dir(directory).map_err(problem)? {
        let path = entry.map_err(problem)?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

fn read(file: &Path) -> Outcome {
    fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))
}

/// A line, counted from 0, and a byte in it.
type Place = (usize, usize);

/// A formula outside of code, from its first `$` to behind its last.
#[derive(Debug)]
struct Formula {
    start: Place,
    end: Option<Place>,
    problems: Vec<String>,
}

/// The source with a backtick at both ends of every broken formula. A repair may let underscores meet
/// others, so it is repeated; each round has fewer formulas outside of code.
fn in_backticks(source: &str) -> String {
    let mut lines: Vec<String> = source.split('\n').map(String::from).collect();
    loop {
        let found = formulas(&lines.join("\n"));
        let broken = found.iter().filter(|formula| !formula.problems.is_empty());
        let mut ends: Vec<Place> = broken.filter_map(|f| f.end.map(|end| [f.start, end])).flatten().collect();
        if ends.is_empty() {
            return lines.join("\n");
        }
        // From the back, so that places stay true.
        ends.sort_unstable();
        for (line, byte) in ends.into_iter().rev() {
            lines[line].insert(byte, '`');
        }
    }
}

/// All formulas of the documentation comments, code blocks left out.
fn formulas(source: &str) -> Vec<Formula> {
    let (mut scan, mut fenced) = (Scan::default(), false);
    for (number, line) in source.split('\n').enumerate() {
        let comment = line.trim_start();
        let text = comment.strip_prefix("//!").or_else(|| comment.strip_prefix("///"));
        let fence = text.is_some_and(|text| text.trim_start().starts_with("```"));
        fenced = text.is_some() && (fenced != fence);
        match text {
            Some(text) if !fenced && !fence && !text.trim().is_empty() => {
                scan.line(number, line.len() - text.len(), text)
            }
            _ => scan.end_paragraph(),
        }
    }
    scan.end_paragraph();
    scan.formulas
}

/// The state of a walk through comments.
#[derive(Default)]
struct Scan {
    formulas: Vec<Formula>,
    /// Within a code span.
    code: bool,
    /// Within the last formula.
    open: bool,
    /// An underscore that may start emphasis, and the formula that it is in.
    emphasis: Option<Option<usize>>,
}

impl Scan {
    /// Walks through `text`, which starts at byte `offset` of its line.
    fn line(&mut self, number: usize, offset: usize, text: &str) {
        let (mut before, mut letters) = (' ', text.char_indices().peekable());
        while let Some((at, letter)) = letters.next() {
            let after = letters.peek().map_or(' ', |(_, letter)| *letter);
            match letter {
                '`' => self.code = !self.code,
                _ if self.code => {}
                '$' => {
                    let width = if after == '$' { 2 } else { 1 };
                    if width == 2 {
                        letters.next();
                    }
                    self.dollar((number, offset + at), width);
                }
                '\\' => {
                    letters.next();
                    if after.is_ascii_punctuation() {
                        self.complain(self.current(), &format!("Markdown drops the backslash of \\{after}"));
                    }
                }
                '*' => self.complain(self.current(), "Markdown may read * as emphasis"),
                '_' => self.underscore(before, after),
                _ => {}
            }
            before = letter;
        }
    }

    fn dollar(&mut self, (line, byte): Place, width: usize) {
        match self.formulas.last_mut() {
            Some(formula) if self.open => formula.end = Some((line, byte + width)),
            _ => self.formulas.push(Formula { start: (line, byte), end: None, problems: Vec::new() }),
        }
        self.open = !self.open;
    }

    /// CommonMark's rule for when an underscore opens or closes emphasis.
    fn underscore(&mut self, before: char, after: char) {
        let punctuation = |c: char| !c.is_whitespace() && !c.is_alphanumeric();
        let left = !after.is_whitespace() && (!punctuation(after) || before.is_whitespace() || punctuation(before));
        let right = !before.is_whitespace() && (!punctuation(before) || after.is_whitespace() || punctuation(after));
        let opens = left && (!right || punctuation(before));
        let closes = right && (!left || punctuation(after));
        match self.emphasis {
            Some(opener) if closes => {
                self.complain(self.current().or(opener), "Markdown reads a pair of underscores as emphasis");
                self.emphasis = None;
            }
            None if opens => self.emphasis = Some(self.current()),
            _ => {}
        }
    }

    fn end_paragraph(&mut self) {
        if self.open {
            self.complain(self.current(), "the formula is not closed in its paragraph");
        }
        (self.code, self.open, self.emphasis) = (false, false, None);
    }

    fn current(&self) -> Option<usize> {
        if self.open { self.formulas.len().checked_sub(1) } else { None }
    }

    /// Notes a problem of a formula; outside of formulas Markdown does as it should.
    fn complain(&mut self, formula: Option<usize>, problem: &str) {
        if let Some(formula) = formula.and_then(|formula| self.formulas.get_mut(formula)) {
            formula.problems.push(problem.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of formulas outside of code, and the lines (from 0) of those that break.
    fn problems(source: &str) -> (usize, Vec<usize>) {
        let found = formulas(source);
        let lines = found.iter().filter(|f| !f.problems.is_empty()).map(|f| f.start.0);
        (found.len(), lines.collect())
    }

    #[test]
    fn broken_formulas_are_found() {
        assert_eq!(problems("//! $p_i = \\frac{1}{2}$ and\n//! $$\\tau\n//! = 1$$"), (2, vec![]));
        assert_eq!(problems("/// $a$\n/// $a\\,b$"), (2, vec![1]));
        assert_eq!(problems("/// $a * b$ and *emphasis*"), (1, vec![0]));
        assert_eq!(problems("/// `$a\\,b$`, `\\{` and \\, in text"), (0, vec![]));
        assert_eq!(problems("/// $a\n///\n/// b"), (1, vec![0]));
        assert_eq!(problems("/// $p_i = [z_i - \\tau]_+$ and $\\sum_{i \\in S} p_i = 1$"), (2, vec![0]));
        assert_eq!(problems("/// $p_i = [z_i - \\tau]_+$\n///\n/// $\\sum_{i \\in S} p_i = 1$"), (2, vec![]));
        assert_eq!(problems("/// _emphasis_ and $p_i$ and `$[x]_+ - [y]_+$`"), (1, vec![]));
        assert_eq!(problems("/// ```\n/// $a\\,b\n/// ```\nfn f() {} // $\n/// $c$"), (1, vec![]));
    }

    #[test]
    fn broken_formulas_are_put_in_backticks() {
        let repaired = in_backticks("    /// Ω $a$, $a\\,b\n    /// + c$ and $$d\\{e$$.\nfn f() {}\n");
        assert_eq!(repaired, "    /// Ω $a$, `$a\\,b\n    /// + c$` and `$$d\\{e$$`.\nfn f() {}\n");
        for source in ["/// $[x]_+$ and $\\sum_{i} [y]_+$ and $\\max_{j}$", "/// $a$ and $b_+ ("] {
            let repaired = in_backticks(source);
            assert!(formulas(&repaired).iter().all(|f| f.problems.is_empty() || f.end.is_none()), "{repaired}");
            assert_eq!(in_backticks(&repaired), repaired);
        }
    }
}
