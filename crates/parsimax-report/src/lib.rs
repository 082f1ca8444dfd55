//! Pictures of sparse probability: what every mapping does to its scores, drawn.
//!
//! ```
//! use parsimax_report::{Request, Size, Theme, figures, render};
//! let entry = figures::find("family")?;
//! let figure = entry.figure(&Request { alphas: vec![1.0, 1.5, 2.0], ..Request::default() })?;
//! let svg = render::svg(&figure, &Theme::light(), Size::of(&figure));
//! # assert!(svg.starts_with("<svg") && svg.contains("α = 1.5"));
//! # Ok::<(), parsimax_report::Error>(())
//! ```
//!
//! Two steps that know nothing of each other meet in one type. [`figures`] compute: each is a function
//! from a [`Request`] to a [`Figure`], plain numbers with names and axes, all of them from the mappings
//! of the core. [`render`] draws any `Figure`: as SVG, as PNG, as a page that needs nothing else; or
//! writes its numbers as JSON and CSV. Tests hold the numbers; the drawing can change without them.

mod error;
mod figure;
pub mod figures;
pub mod inflection;
pub mod render;
mod theme;

pub use error::{Error, Result};
pub use figure::{Axis, Figure, Ink, Key, Lines, Panel, Plot, Scale, Series, Simplex, SimplexPoint, Surface};
pub use figures::Request;
pub use render::Size;
pub use theme::{Colour, Theme};
