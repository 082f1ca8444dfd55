//! Cells of a line: separators, quotes, escapes. What ARFF's names and values share.

/// A reader of one line's words.
#[derive(Debug)]
pub(crate) struct Words<'a> {
    rest: &'a str,
}

impl<'a> Words<'a> {
    pub(crate) fn new(line: &'a str) -> Self {
        Self { rest: line }
    }

    pub(crate) fn skip_blank(&mut self) {
        self.rest = self.rest.trim_start();
    }

    /// What has not been read.
    pub(crate) fn rest(&self) -> &'a str {
        self.rest
    }

    /// Takes `c` if it comes next.
    pub(crate) fn take(&mut self, c: char) -> bool {
        self.skip_blank();
        let found = self.rest.strip_prefix(c);
        self.rest = found.unwrap_or(self.rest);
        found.is_some()
    }

    /// The next word: quoted, with escapes, or up to a blank or one of `ends`.
    pub(crate) fn word(&mut self, ends: &[char]) -> Result<std::borrow::Cow<'a, str>, String> {
        self.skip_blank();
        match self.rest.chars().next() {
            Some(quote @ ('\'' | '"')) => self.quoted(quote).map(Into::into),
            _ => {
                let end = self.rest.find(|c: char| c.is_whitespace() || ends.contains(&c)).unwrap_or(self.rest.len());
                let (word, rest) = self.rest.split_at(end);
                self.rest = rest;
                if word.is_empty() { Err("a word is missing".into()) } else { Ok(word.into()) }
            }
        }
    }

    fn quoted(&mut self, quote: char) -> Result<String, String> {
        let mut word = String::new();
        let mut chars = self.rest.char_indices().skip(1);
        while let Some((at, c)) = chars.next() {
            match c {
                '\\' => match chars.next() {
                    Some((_, 'n')) => word.push('\n'),
                    Some((_, 't')) => word.push('\t'),
                    Some((_, c)) => word.push(c),
                    None => break,
                },
                c if c == quote => {
                    self.rest = &self.rest[at + c.len_utf8()..];
                    return Ok(word);
                }
                c => word.push(c),
            }
        }
        Err(format!("the quote {quote} is never closed"))
    }
}

/// A number, as the files spell it; NaN and infinities are none.
pub(crate) fn number(word: &str) -> Option<f64> {
    word.parse().ok().filter(|value: &f64| value.is_finite())
}
