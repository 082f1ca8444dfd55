//! Drawings of every figure: well-formed, readable, complete, and with no reference to the outside.

use ab_glyph::{Font, FontRef};
use parsimax_report::figures::FIGURES;
use parsimax_report::{Figure, Request, Size, Theme, render};

fn all() -> impl Iterator<Item = Figure> {
    FIGURES.iter().map(|entry| entry.figure(&Request::default()).unwrap())
}

fn drawn(figure: &Figure) -> String {
    render::svg(figure, &Theme::light(), Size::of(figure))
}

/// No attribute, path or coordinate holds what is no number.
fn numbers_are_finite(svg: &str) -> bool {
    let document = roxmltree::Document::parse(svg).unwrap();
    let mut attributes = document.descendants().flat_map(|node| node.attributes());
    attributes.all(|attribute| !attribute.value().contains("NaN") && !attribute.value().contains("inf"))
}

#[test]
fn svg_is_well_formed_and_holds_every_title() {
    for figure in all() {
        for theme in [Theme::light(), Theme::dark()] {
            let svg = render::svg(&figure, &theme, Size::of(&figure));
            let document = roxmltree::Document::parse(&svg).unwrap_or_else(|error| panic!("{}: {error}", figure.name));
            let texts: Vec<&str> = document.descendants().filter_map(|node| node.text()).collect();
            let titles = figure.panels.iter().map(|panel| &panel.title).filter(|title| !title.is_empty());
            for text in titles.chain([&figure.title, &figure.subtitle]) {
                assert!(texts.contains(&text.as_str()), "{}: {text}", figure.name);
            }
            assert!(numbers_are_finite(&svg), "{}", figure.name);
        }
    }
}

#[test]
fn text_is_large_enough_and_inside_the_picture() {
    for figure in all() {
        let size = Size::of(&figure);
        let svg = drawn(&figure);
        let document = roxmltree::Document::parse(&svg).unwrap();
        for node in document.descendants().filter(|node| node.has_tag_name("text")) {
            let value = |name: &str| node.attribute(name).unwrap().parse::<f64>().unwrap();
            assert!(value("font-size") >= 12.0, "{}: {:?}", figure.name, node.text());
            assert!((0.0..=f64::from(size.width)).contains(&value("x")), "{}: {:?}", figure.name, node.text());
            assert!((0.0..=f64::from(size.height)).contains(&value("y")), "{}: {:?}", figure.name, node.text());
        }
    }
}

#[test]
fn the_font_has_every_character() {
    let fonts =
        [include_bytes!("../fonts/Inter-Regular.ttf").as_slice(), include_bytes!("../fonts/Inter-SemiBold.ttf")];
    for bytes in fonts {
        let font = FontRef::try_from_slice(bytes).unwrap();
        for figure in all() {
            let svg = drawn(&figure);
            let document = roxmltree::Document::parse(&svg).unwrap();
            for node in document.descendants().filter(|node| node.has_tag_name("text")) {
                for c in node.text().unwrap_or_default().chars() {
                    assert!(font.glyph_id(c).0 != 0, "{}: '{c}' of {:?}", figure.name, node.text());
                }
            }
        }
    }
}

#[test]
fn png_has_the_size_that_was_asked_for_and_text_in_it() {
    let figure = all().next().unwrap();
    for (size, scale) in [(Size { width: 640, height: 480 }, 1.0f32), (Size { width: 333, height: 241 }, 2.0)] {
        let png = render::png(&render::svg(&figure, &Theme::light(), size), scale).unwrap();
        let pixmap = resvg::tiny_skia::Pixmap::decode_png(&png).unwrap();
        let expected = (size.width * scale as u32, size.height * scale as u32);
        assert_eq!((pixmap.width(), pixmap.height()), expected);
        // The title lies in the upper 40 pixels and nothing else does: dark pixels there are letters.
        let rows = 40 * scale as usize * pixmap.width() as usize;
        let dark = pixmap.pixels()[..rows].iter().filter(|pixel| pixel.red() < 100).count();
        assert!(dark > 300, "{dark} dark pixels");
    }
    assert!(render::png("<svg", 1.0).is_err());
}

#[test]
fn pages_stand_alone_and_follow_the_reader() {
    for (entry, figure) in FIGURES.iter().zip(all()) {
        let page = render::figure_page(&figure, entry.after, Size::of(&figure));
        let outside = page.replace("http://www.w3.org/2000/svg", "");
        for reference in ["http:", "https:", "//", "src=", "href=", "url(", "@import", "<script", "<link"] {
            assert!(!outside.contains(reference), "{}: {reference}", figure.name);
        }
        assert!(page.starts_with("<!DOCTYPE html>") && page.contains("prefers-color-scheme: dark"));
        assert!(page.contains("<meta charset=\"utf-8\">") && page.contains("viewport"));
        // The colours of the light ink are exchanged.
        assert!(page.contains("svg [fill=\"#1a1a1c\"] { fill: #ebecf0; }"), "{}", figure.name);
    }
}

#[test]
fn numbers_can_be_read_back() {
    for figure in all() {
        let json: serde_json::Value = serde_json::from_str(&render::json(&figure)).unwrap();
        assert_eq!(json["panels"].as_array().unwrap().len(), figure.panels.len());
        let csv = render::csv(&figure);
        let mut lines = csv.lines();
        assert_eq!(lines.next(), Some("panel,series,x,y,value,lower,upper"));
        assert!(lines.clone().count() >= 12, "{}", figure.name);
        for line in lines {
            // Names are quoted and may hold commas; what follows the last quote has the numbers.
            let numbers = line.rsplit('"').next().unwrap();
            assert!(numbers.split(',').filter(|n| !n.is_empty()).all(|n| n.parse::<f64>().is_ok()), "{line}");
        }
    }
}

#[test]
fn tiny_and_huge_pictures_are_drawn() {
    for figure in all() {
        for side in [*Size::SIDES.start(), *Size::SIDES.end()] {
            let svg = render::svg(&figure, &Theme::light(), Size { width: side, height: side });
            assert!(roxmltree::Document::parse(&svg).is_ok() && !svg.contains("NaN"), "{} at {side}", figure.name);
        }
    }
}

#[test]
fn scores_of_any_size_find_their_place() {
    for z in [[1e300, -1e300, 0.0], [f64::MAX, f64::MIN, 0.0], [0.0; 3], [1e-300, 0.0, 0.0]] {
        let request = Request { scores: z.to_vec(), ..Request::default() };
        let figure = parsimax_report::figures::find("simplex").unwrap().figure(&request).unwrap();
        let svg = drawn(&figure);
        assert!(numbers_are_finite(&svg), "{z:?}");
    }
}
