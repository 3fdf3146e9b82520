//! Pictures of a run: how the bound fell, and a cut through the solution.

use std::path::Path;

use plotters::prelude::*;
use polyrail_solve::gather::Solution;

const SIZE: (u32, u32) = (960, 600);
const LINE: RGBColor = RGBColor(0x1f, 0x5f, 0xa8);
const WANTED: RGBColor = RGBColor(0xb0, 0x30, 0x30);
const FONT: &str = "sans-serif";
/// Fields of a cut in each direction, at most: a picture of text grows with each.
const FIELDS: usize = 128;
/// Colours from low to high, between which others are mixed: dark blue to yellow, also told apart where colours are not seen.
const COLOURS: [[f64; 3]; 5] =
    [[68.0, 1.0, 84.0], [59.0, 82.0, 139.0], [33.0, 145.0, 140.0], [94.0, 201.0, 98.0], [253.0, 231.0, 37.0]];

/// Draws bounds against seconds.
pub fn convergence(file: &Path, history: &[(f64, f64)], wanted: f64) -> Result<(), String> {
    draw_convergence(file, history, wanted).map_err(|why| why.to_string())
}

fn draw_convergence(
    file: &Path,
    history: &[(f64, f64)],
    wanted: f64,
) -> Result<(), Box<dyn std::error::Error>> {
    let history: Vec<_> = history.iter().copied().filter(|(_, bound)| *bound < 1e300).collect();
    let end = history.last().map_or(1.0, |(seconds, _)| seconds.max(1e-3));
    let most = history.iter().map(|(_, bound)| *bound).fold(wanted * 10.0, f64::max);
    let least = history.iter().map(|(_, bound)| *bound).fold(wanted / 2.0, f64::min);
    let area = SVGBackend::new(file, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .margin(16)
        .margin_right(32)
        .caption("how far the values may be from the solution", (FONT, 20))
        .x_label_area_size(56)
        .y_label_area_size(84)
        .build_cartesian_2d(0.0..end * 1.02, (least..most).log_scale())?;
    chart
        .configure_mesh()
        .x_desc("seconds")
        .y_desc("bound")
        .y_label_formatter(&|bound| format!("{bound:.0e}"))
        .axis_desc_style((FONT, 17))
        .label_style((FONT, 14))
        .light_line_style(TRANSPARENT)
        .draw()?;
    chart.draw_series(LineSeries::new([(0.0, wanted), (end * 1.02, wanted)], WANTED.stroke_width(1)))?;
    chart.draw_series(LineSeries::new(history, LINE.stroke_width(2)))?;
    area.present()?;
    Ok(())
}

/// Draws the plane in the middle, and where the membrane touches the obstacle.
pub fn cut(file: &Path, solution: &Solution) -> Result<(), String> {
    draw_cut(file, solution).map_err(|why| why.to_string())
}

fn draw_cut(file: &Path, solution: &Solution) -> Result<(), Box<dyn std::error::Error>> {
    let n = solution.task.problem.n;
    let (step, half) = (n.div_ceil(FIELDS), solution.task.problem.half());
    let z = n / 2;
    let places: Vec<usize> = (0..n).step_by(step).collect();
    let at = |x: usize, y: usize| solution.whole.row(y, z) + x;
    let values = || places.iter().flat_map(|y| places.iter().map(|x| solution.whole.u[at(*x, *y)]));
    let (least, most) = values().fold((f64::MAX, f64::MIN), |(a, b), value| (a.min(value), b.max(value)));
    let area = SVGBackend::new(file, (720, 720)).into_drawing_area();
    area.fill(&WHITE)?;
    let caption =
        format!("u in the middle plane, from {least:.3} to {most:.3}; dark points: at the obstacle");
    let mut chart = ChartBuilder::on(&area)
        .margin(16)
        .caption(caption, (FONT, 18))
        .x_label_area_size(40)
        .y_label_area_size(48)
        .build_cartesian_2d(-half..half, -half..half)?;
    chart.configure_mesh().disable_mesh().label_style((FONT, 14)).draw()?;
    let wide = 2.0 * half / (n + 1) as f64 * step as f64;
    let fields = places.iter().flat_map(|y| places.iter().map(move |x| (*x, *y))).map(|(x, y)| {
        let share = (solution.whole.u[at(x, y)] - least) / (most - least).max(1e-300);
        let (left, low) = (solution.task.problem.place(x + 1), solution.task.problem.place(y + 1));
        let corner = |a: f64, b: f64| (left + a * wide / 2.0, low + b * wide / 2.0);
        Rectangle::new([corner(-1.0, -1.0), corner(1.0, 1.0)], colour(share).filled())
    });
    chart.draw_series(fields)?;
    let touched = places.iter().flat_map(|y| places.iter().map(move |x| (*x, *y))).filter(|(x, y)| {
        let i = at(*x, *y);
        solution.whole.u[i] <= solution.whole.phi[i]
    });
    chart.draw_series(touched.map(|(x, y)| {
        let place = |i: usize| solution.task.problem.place(i + 1);
        Circle::new((place(x), place(y)), 1, BLACK.filled())
    }))?;
    area.present()?;
    Ok(())
}

fn colour(share: f64) -> RGBColor {
    let at = share.clamp(0.0, 1.0) * (COLOURS.len() - 1) as f64;
    let low = (at as usize).min(COLOURS.len() - 2);
    let mixed = |part: usize| {
        let (from, to) = (COLOURS[low][part], COLOURS[low + 1][part]);
        (from + (to - from) * (at - low as f64)).round() as u8
    };
    RGBColor(mixed(0), mixed(1), mixed(2))
}
