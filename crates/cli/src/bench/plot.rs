//! The figures as a picture: both axes logarithmic, the median a line, least and most an area around it.

use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;

use super::error::Error;
use super::sizes::written;
use super::{Figure, Point};

const SIZE: (u32, u32) = (960, 600);
const LINE: RGBColor = RGBColor(0x1f, 0x5f, 0xa8);
const GRID: RGBColor = RGBColor(0xdd, 0xdd, 0xdd);
const FONT: &str = "sans-serif";

/// Draws the points into an SVG file. A size of zero bytes has no place on a logarithmic axis and is left out.
pub fn draw(file: &Path, figure: Figure, title: &str, points: &[Point]) -> Result<(), Error> {
    let points: Vec<&Point> = points.iter().filter(|point| point.size > 0).collect();
    let failed = |why: String| Error::Draw { file: file.into(), why };
    if points.is_empty() {
        return Err(failed("there is no size above zero".into()));
    }
    let area = SVGBackend::new(file, SIZE).into_drawing_area();
    paint(&area, figure, title, &points).map_err(|why| failed(why.to_string()))
}

fn paint<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    figure: Figure,
    title: &str,
    points: &[&Point],
) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
    let y_name = match figure {
        Figure::Latency => "half round trip (us)",
        Figure::Bandwidth => "bandwidth (MB/s)",
        Figure::Rate => "messages per second",
    };
    // whole powers of the bases, so that the axes end at a label
    let (first, last) = (points[0].size as f64, points[points.len() - 1].size as f64);
    let (low, high) = (first.log2().floor(), last.log2().ceil());
    let (low, high) = if high - low < 4.0 { ((low - 2.0).max(0.0), high + 2.0) } else { (low, high) };
    let xs = low.exp2()..high.exp2();
    let least = points.iter().map(|point| point.least).fold(f64::INFINITY, f64::min);
    let most = points.iter().map(|point| point.most).fold(0.0, f64::max);
    let (bottom, top) = (least.log10().floor(), most.log10().ceil());
    let top = top.max(bottom + 1.0);
    // a hair more, so that rounding does not lose the lowest label
    let ys = 10f64.powf(bottom) * 0.9999..10f64.powf(top);

    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(area)
        .margin(16)
        .margin_right(32)
        .caption(title, (FONT, 20))
        .x_label_area_size(56)
        .y_label_area_size(84)
        .build_cartesian_2d(xs.log_scale().base(2.0), ys.log_scale())?;
    chart
        .configure_mesh()
        .x_desc("message size (bytes)")
        .y_desc(y_name)
        .x_labels((high - low) as usize + 1)
        .y_labels(if top - bottom > 2.0 { (top - bottom) as usize + 1 } else { 10 })
        .x_label_formatter(&|size| written(size.round() as u64))
        .y_label_formatter(&|value| plain(*value))
        .axis_desc_style((FONT, 17))
        .label_style((FONT, 14))
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .draw()?;
    let at = |point: &Point, value: f64| (point.size as f64, value);
    let around: Vec<(f64, f64)> =
        points.iter().map(|p| at(p, p.least)).chain(points.iter().rev().map(|p| at(p, p.most))).collect();
    chart.draw_series([Polygon::new(around, LINE.mix(0.2))])?;
    chart.draw_series(LineSeries::new(points.iter().map(|p| at(p, p.median)), LINE.stroke_width(2)))?;
    chart.draw_series(points.iter().map(|p| Circle::new(at(p, p.median), 3, LINE.filled())))?;
    area.present()
}

/// A label of the value axis, which has whole powers of ten.
fn plain(value: f64) -> String {
    let (unit, name) = match value {
        v if v >= 0.99e6 => (1e6, " M"),
        v if v >= 0.99e4 => (1e3, " k"),
        _ => (1.0, ""),
    };
    format!("{}{name}", (value / unit * 1e6).round() / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(size: usize, value: f64) -> Point {
        Point::of(size, vec![value * 0.9, value, value * 1.3], 100)
    }

    #[test]
    fn the_picture_has_labels_and_all_points() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("latency.svg");
        let points: Vec<Point> = (0..=26).map(|power| point(1 << power, 0.5 * 1.5f64.powi(power))).collect();
        draw(&file, Figure::Latency, "latency over shm", &points).unwrap();
        let svg = std::fs::read_to_string(&file).unwrap();
        assert_eq!(svg.matches("<circle").count(), points.len());
        for text in ["message size (bytes)", "half round trip (us)", "latency over shm", "64M"] {
            assert!(svg.contains(text), "{text}");
        }
    }

    #[test]
    fn one_point_is_enough_and_none_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("rate.svg");
        draw(&file, Figure::Rate, "rate", &[point(8, 1e6)]).unwrap();
        assert!(draw(&file, Figure::Rate, "rate", &[point(0, 1e6)]).is_err());
        let nowhere = dir.path().join("none/rate.svg");
        let why = draw(&nowhere, Figure::Rate, "rate", &[point(8, 1e6)]).unwrap_err().to_string();
        assert!(why.contains("none/rate.svg"), "{why}");
    }

    #[test]
    fn labels_are_short() {
        for (value, text) in [(0.01, "0.01"), (1.0, "1"), (1000.0, "1000"), (1e5, "100 k"), (1e7, "10 M")] {
            assert_eq!(plain(value), text);
        }
    }
}
