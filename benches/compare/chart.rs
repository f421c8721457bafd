//! The figures as pictures: horizontal bars, allowed and denied beside each other.

use std::error::Error;
use std::path::Path;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::figures::{Figure, Measured};
use rivals::Outcome;

const WIDTH: u32 = 760;
const ROW: i32 = 22;
const TOP: i32 = 74;
/// Where the bars begin, and the room right of the longest for its figure.
const LEFT: i32 = 200;
const RIGHT: i32 = 70;
const INK: RGBColor = RGBColor(51, 51, 51);
const PALE: RGBColor = RGBColor(119, 119, 119);
const FONT: &str = "sans-serif";

fn colour(one: &Measured) -> RGBColor {
    let ours = one.contender.name.starts_with("RL.");
    match (ours, one.contender.outcome) {
        (true, Outcome::Denied) => RGBColor(158, 202, 225),
        (true, _) => RGBColor(33, 113, 181),
        (false, Outcome::Denied) => RGBColor(200, 200, 200),
        (false, _) => RGBColor(140, 140, 140),
    }
}

/// Draws one figure of those contenders that have it.
pub(crate) fn bars(
    path: &Path,
    title: &str,
    unit: &str,
    digits: usize,
    all: &[&Measured],
    figure: impl Fn(&Measured) -> &Figure,
) -> Result<(), Box<dyn Error>> {
    let shown: Vec<&Measured> = all.iter().copied().filter(|one| figure(one).is_measured()).collect();
    let longest = shown.iter().map(|one| figure(one).median()).fold(0.0, f64::max);
    let height = TOP + ROW * shown.len() as i32 + 16;
    let root = SVGBackend::new(path, (WIDTH, height as u32)).into_drawing_area();
    root.fill(&WHITE)?;
    let text = |size: f64, colour: &RGBColor, horizontal| {
        (FONT, size).into_font().color(colour).pos(Pos::new(horizontal, VPos::Center))
    };
    root.draw(&Text::new(title, (16, 24), text(18.0, &INK, HPos::Left)))?;
    root.draw(&Text::new(unit, (16, 48), text(13.0, &PALE, HPos::Left)))?;
    for (row, one) in shown.iter().enumerate() {
        let top = TOP + ROW * row as i32;
        let middle = top + ROW / 2;
        let value = figure(one).median();
        let length = (f64::from(WIDTH as i32 - LEFT - RIGHT) * value / longest) as i32;
        root.draw(&Text::new(one.contender.label(), (LEFT - 8, middle), text(13.0, &INK, HPos::Right)))?;
        root.draw(&Rectangle::new([(LEFT, top + 3), (LEFT + length, top + ROW - 3)], colour(one).filled()))?;
        let value = format!("{value:.digits$}");
        root.draw(&Text::new(value, (LEFT + length + 6, middle), text(13.0, &INK, HPos::Left)))?;
    }
    root.present()?;
    Ok(())
}
