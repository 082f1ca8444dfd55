//! Colours: what ink and paper are, how kinds are told apart, and the same for dark rooms.

use crate::Ink;

/// Red, green, blue.
pub type Colour = (u8, u8, u8);

/// The colours of a drawing.
///
/// Kinds take the colours of Okabe and Ito, which people with any of the common colour deficiencies tell
/// apart, without the yellow that vanishes on paper; ordered families take viridis and surfaces cividis,
/// which grow in lightness alike for all.
#[derive(Debug, Clone, PartialEq)]
pub struct Theme {
    /// The background.
    pub paper: Colour,
    /// Text and axes.
    pub ink: Colour,
    /// Text of second rank.
    pub faint: Colour,
    /// Grid lines.
    pub grid: Colour,
    /// Reference curves.
    pub reference: Colour,
    /// Where a surface is exactly zero.
    pub zero: Colour,
    kinds: [Colour; 7],
    /// The part of viridis that stands out from the paper.
    order: (f64, f64),
}

/// Steps of an ordered family that have a colour of their own.
const ORDER_STEPS: usize = 24;

impl Theme {
    /// Dark ink on white paper.
    #[must_use]
    pub fn light() -> Self {
        Self {
            paper: (255, 255, 255),
            ink: (26, 26, 28),
            faint: (88, 90, 96),
            grid: (225, 227, 231),
            reference: (150, 153, 160),
            zero: (236, 237, 240),
            kinds: [
                (0, 114, 178),
                (213, 94, 0),
                (0, 158, 115),
                (190, 95, 150),
                (222, 143, 5),
                (72, 164, 214),
                (60, 60, 64),
            ],
            order: (0.0, 0.7),
        }
    }

    /// Light ink on dark paper.
    #[must_use]
    pub fn dark() -> Self {
        Self {
            paper: (20, 22, 26),
            ink: (235, 236, 240),
            faint: (170, 174, 182),
            grid: (52, 56, 63),
            reference: (125, 130, 140),
            zero: (44, 47, 53),
            kinds: [
                (86, 180, 233),
                (240, 130, 60),
                (40, 190, 145),
                (214, 140, 182),
                (236, 178, 50),
                (120, 200, 245),
                (205, 207, 212),
            ],
            order: (1.0, 0.35),
        }
    }

    /// The colour of a curve or a point.
    #[must_use]
    pub fn colour(&self, ink: Ink) -> Colour {
        match ink {
            Ink::Kind(kind) => self.kinds[kind % self.kinds.len()],
            Ink::Order(place, _) => self.step((place.clamp(0.0, 1.0) * (ORDER_STEPS - 1) as f64).round() as usize),
            Ink::Reference => self.reference,
            Ink::Overlay => self.ink,
        }
    }

    fn step(&self, step: usize) -> Colour {
        let (from, to) = self.order;
        viridis(from + (to - from) * step as f64 / (ORDER_STEPS - 1) as f64)
    }

    /// Every colour of this theme that a drawing may hold, in the same order for every theme: what a page
    /// needs to turn one theme into another.
    pub(crate) fn all(&self) -> Vec<Colour> {
        let named = [self.paper, self.ink, self.faint, self.grid, self.reference, self.zero];
        named.into_iter().chain(self.kinds).chain((0..ORDER_STEPS).map(|step| self.step(step))).collect()
    }
}

/// Lengths of dashes and gaps in pixels, for the second cue beside colour; empty is a solid line.
pub(crate) fn dashes(ink: Ink) -> &'static [f64] {
    const PATTERNS: [&[f64]; 4] = [&[], &[8.0, 4.0], &[2.0, 3.5], &[10.0, 3.5, 2.0, 3.5]];
    match ink {
        Ink::Kind(rank) | Ink::Order(_, rank) => PATTERNS[rank % PATTERNS.len()],
        Ink::Reference => &[4.0, 3.0],
        Ink::Overlay => &[0.1, 13.0],
    }
}

/// The colour map cividis (Nuñez, Anderton & Renslow 2018), between nine of its values.
pub(crate) fn cividis(value: f64) -> Colour {
    const VALUES: [Colour; 9] = [
        (0, 34, 78),
        (26, 56, 111),
        (67, 78, 108),
        (97, 101, 111),
        (125, 124, 120),
        (155, 148, 118),
        (188, 174, 108),
        (222, 201, 88),
        (254, 232, 56),
    ];
    between(&VALUES, value)
}

/// The colour map viridis of matplotlib, between nine of its values.
fn viridis(value: f64) -> Colour {
    const VALUES: [Colour; 9] = [
        (68, 1, 84),
        (71, 45, 123),
        (59, 82, 139),
        (44, 114, 142),
        (33, 145, 140),
        (40, 174, 128),
        (94, 201, 98),
        (173, 220, 48),
        (253, 231, 37),
    ];
    between(&VALUES, value)
}

/// The colour at a share of the way through a map.
fn between(map: &[Colour; 9], value: f64) -> Colour {
    let place = value.clamp(0.0, 1.0) * (map.len() - 1) as f64;
    let below = (place as usize).min(map.len() - 2);
    mix(map[below], map[below + 1], place - below as f64)
}

/// The colour between two, `share` of the way to the second.
pub(crate) fn mix(a: Colour, b: Colour, share: f64) -> Colour {
    let between = |a: u8, b: u8| (f64::from(a) + (f64::from(b) - f64::from(a)) * share).round() as u8;
    (between(a.0, b.0), between(a.1, b.1), between(a.2, b.2))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Relative luminance as the accessibility guidelines of the web define it.
    fn luminance((r, g, b): Colour) -> f64 {
        let linear = |c: u8| {
            let c = f64::from(c) / 255.0;
            if c <= 0.04045 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b)
    }

    fn contrast(a: Colour, b: Colour) -> f64 {
        let (a, b) = (luminance(a), luminance(b));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    #[test]
    fn text_can_be_read() {
        for theme in [Theme::light(), Theme::dark()] {
            // 4.5 is what the guidelines ask of text.
            for text in [theme.ink, theme.faint] {
                assert!(contrast(text, theme.paper) >= 4.5, "{text:?} on {:?}", theme.paper);
            }
        }
    }

    #[test]
    fn curves_stand_out() {
        for theme in [Theme::light(), Theme::dark()] {
            let orders = (0..=10).map(|i| Ink::Order(f64::from(i) / 10.0, 0));
            for ink in (0..7).map(Ink::Kind).chain(orders) {
                // Half of what lines of one pixel would need: these have two, dashes and a label.
                let contrast = contrast(theme.colour(ink), theme.paper);
                assert!(contrast >= 2.3, "{ink:?}: {contrast}");
            }
        }
    }

    #[test]
    fn kinds_differ_in_colour_or_dashes() {
        let looks: Vec<_> = (0..12).map(|k| (Theme::light().colour(Ink::Kind(k)), dashes(Ink::Kind(k)))).collect();
        for (i, look) in looks.iter().enumerate() {
            assert!(!looks[..i].contains(look), "kind {i}");
        }
    }

    #[test]
    fn light_and_dark_have_the_same_roles() {
        let (light, dark) = (Theme::light().all(), Theme::dark().all());
        assert_eq!(light.len(), dark.len());
        // A page swaps colours by value, so one light colour must not stand for two roles.
        for (i, colour) in light.iter().enumerate() {
            assert!(!light[..i].contains(colour), "{colour:?}");
        }
    }

    #[test]
    fn colour_maps_grow_in_lightness() {
        for map in [cividis, viridis] {
            let lightness: Vec<f64> = (0..=40).map(|i| luminance(map(f64::from(i) / 40.0))).collect();
            assert!(lightness.windows(2).all(|pair| pair[1] > pair[0]));
        }
    }
}
