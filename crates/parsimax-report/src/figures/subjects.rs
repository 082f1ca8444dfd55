//! Which mappings a figure shows: its own choice, or the user's.

use parsimax::registry::{self, Options};
use parsimax::{Mapping, MappingExt, Regularized};

use crate::{Error, Result};

/// What a user may choose about a figure. Empty and `None` leave the choice to the figure.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Request {
    /// Names of the registry.
    pub mappings: Vec<String>,
    /// Values of α: mappings with an α are shown once for each.
    pub alphas: Vec<f64>,
    /// The other parameters; `alpha` is not read. A parameter is given to every mapping that has it.
    pub options: Options,
    /// Scores to show; only for the simplex.
    pub scores: Vec<f64>,
}

impl Request {
    /// The options of the figure, not of its mappings, that are given, with their values as text.
    pub(super) fn given(&self) -> impl Iterator<Item = (&'static str, String)> {
        let mappings = (!self.mappings.is_empty()).then(|| ("mapping", self.mappings.join(",")));
        let scores = (!self.scores.is_empty()).then(|| ("scores", format!("{:?}", self.scores)));
        [mappings, scores].into_iter().flatten()
    }

    /// The parameters of mappings that are given.
    fn parameters(&self) -> Vec<&'static str> {
        let Options { alpha: _, gamma, lambda, p, eps, q, budget } = self.options;
        let alpha = self.alphas.first().copied();
        let all = [
            ("alpha", alpha),
            ("gamma", gamma),
            ("lambda", lambda),
            ("p", p),
            ("eps", eps),
            ("q", q),
            ("budget", budget),
        ];
        all.into_iter().filter(|(_, value)| value.is_some()).map(|(name, _)| name).collect()
    }
}

/// A mapping with its parameters, and what to call it.
pub(super) struct Subject {
    pub(super) name: &'static str,
    pub(super) label: String,
    pub(super) mapping: Box<dyn Mapping>,
}

/// A mapping that the figure chooses, with the parameters that it chooses for it.
#[derive(Clone, Copy)]
pub(super) struct Choice {
    pub(super) name: &'static str,
    pub(super) options: Options,
}

/// More than these cannot be told apart in one figure.
const MOST: usize = 12;

/// No parameter but the mappings' own defaults.
pub(super) const DEFAULTS: Options =
    Options { alpha: None, gamma: None, lambda: None, p: None, eps: None, q: None, budget: None };

pub(super) const fn choice(name: &'static str, options: Options) -> Choice {
    Choice { name, options }
}

/// The mappings of the request, or else of the figure, with the parameters of the request where given.
pub(super) fn subjects(figure: &'static str, request: &Request, choices: &[Choice]) -> Result<Vec<Subject>> {
    let wanted = match request.mappings.as_slice() {
        [] => choices.to_vec(),
        names => names.iter().map(|name| chosen(name, choices)).collect::<Result<Vec<_>>>()?,
    };
    for parameter in request.parameters() {
        if !wanted.iter().any(|choice| takes(choice.name, parameter)) {
            let names: Vec<&str> = wanted.iter().map(|choice| choice.name).collect();
            let expected = format!("absent: {} has no such parameter", names.join(", "));
            return Err(Error::Option { figure, option: parameter, expected, got: "a value".into() });
        }
    }
    let mut all = Vec::new();
    for choice in wanted {
        let alphas = match request.alphas.as_slice() {
            alphas if !alphas.is_empty() && takes(choice.name, "alpha") => alphas.iter().copied().map(Some).collect(),
            _ => vec![choice.options.alpha],
        };
        for alpha in alphas {
            all.push(subject(choice, Options { alpha, ..overlaid(choice, &request.options) })?);
        }
    }
    if all.len() > MOST {
        let (expected, got) = (format!("at most {MOST} curves or panels"), all.len().to_string());
        return Err(Error::Option { figure, option: "mapping and alpha", expected, got });
    }
    Ok(all)
}

/// The named mapping, with the figure's parameters for it if the figure has any.
fn chosen(name: &str, choices: &[Choice]) -> Result<Choice> {
    let entry = registry::find(name)?;
    let known = choices.iter().find(|choice| choice.name == name);
    Ok(known.copied().unwrap_or(choice(entry.name, DEFAULTS)))
}

fn takes(name: &str, parameter: &str) -> bool {
    registry::find(name).is_ok_and(|entry| entry.takes.contains(&parameter))
}

/// The figure's parameters, replaced by the request's where the mapping has them.
fn overlaid(choice: Choice, given: &Options) -> Options {
    let pick = |name, given: Option<f64>, own: Option<f64>| given.filter(|_| takes(choice.name, name)).or(own);
    let own = choice.options;
    Options {
        alpha: own.alpha,
        gamma: pick("gamma", given.gamma, own.gamma),
        lambda: pick("lambda", given.lambda, own.lambda),
        p: pick("p", given.p, own.p),
        eps: pick("eps", given.eps, own.eps),
        q: pick("q", given.q, own.q),
        budget: pick("budget", given.budget, own.budget),
    }
}

fn subject(choice: Choice, options: Options) -> Result<Subject> {
    let mapping = registry::build(choice.name, &options)?;
    Ok(Subject { name: choice.name, label: label(choice.name, &options), mapping })
}

/// The name with the parameters that are set: "entmax, α = 1.25".
fn label(name: &str, options: &Options) -> String {
    let Options { alpha, gamma, lambda, p, eps, q, budget } = *options;
    let letters = [("α", alpha), ("λ", lambda), ("p", p), ("ε", eps), ("q", q), ("Σp", budget), ("γ", gamma)];
    let set = letters.iter().filter_map(|(letter, value)| value.map(|value| format!(", {letter} = {value}")));
    std::iter::once(name.to_owned()).chain(set).collect()
}

impl Subject {
    pub(super) fn apply(&self, z: &[f64]) -> Result<Vec<f64>> {
        Ok(self.mapping.apply(z)?)
    }

    /// The regularised mapping, which the figure needs for its Ω.
    pub(super) fn regularized(&self, figure: &'static str) -> Result<&dyn Regularized> {
        self.mapping.regularized().filter(|_| self.mapping.total(2) == 1.0).ok_or_else(|| Error::Option {
            figure,
            option: "mapping",
            expected: "a mapping onto the simplex with a regulariser Ω".into(),
            got: self.name.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_name_what_is_set() {
        assert_eq!(label("softmax", &DEFAULTS), "softmax");
        let options = Options { alpha: Some(1.25), gamma: Some(0.5), ..DEFAULTS };
        assert_eq!(label("entmax", &options), "entmax, α = 1.25, γ = 0.5");
    }

    #[test]
    fn parameters_go_to_the_mappings_that_have_them() {
        let own = [choice("softmax", DEFAULTS), choice("fusedmax", Options { lambda: Some(0.2), ..DEFAULTS })];
        let options = Options { gamma: Some(2.0), ..DEFAULTS };
        let both = subjects("test", &Request { options, ..Request::default() }, &own).unwrap();
        let labels: Vec<&str> = both.iter().map(|subject| subject.label.as_str()).collect();
        assert_eq!(labels, ["softmax, γ = 2", "fusedmax, λ = 0.2, γ = 2"]);
        let one = Request { options: Options { q: Some(1.0), ..DEFAULTS }, ..Request::default() };
        let error = subjects("test", &one, &own).err().unwrap().to_string();
        assert!(error.contains("q must be absent: softmax, fusedmax has no such parameter"), "{error}");
    }

    #[test]
    fn a_mapping_is_shown_once_for_each_alpha() {
        let request =
            Request { mappings: vec!["softmax".into(), "entmax".into()], alphas: vec![1.2, 1.7], ..Request::default() };
        let all = subjects("test", &request, &[]).unwrap();
        let labels: Vec<&str> = all.iter().map(|subject| subject.label.as_str()).collect();
        assert_eq!(labels, ["softmax", "entmax, α = 1.2", "entmax, α = 1.7"]);
    }
}
