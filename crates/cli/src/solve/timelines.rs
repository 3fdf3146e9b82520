//! What each process of a run did, by time.

use std::path::Path;

use plotters::prelude::*;
use polyrail_p2p::{Member, View};
use polyrail_solve::gather::Did;
use polyrail_solve::run::Progress;
use serde::Serialize;

/// Samples of a process, at most: beyond that every second one is let go.
const SAMPLES: usize = 400;
const WIDE: u32 = 960;
/// Heights in the picture, in pixels: of a process, and of what is besides all of them.
const ROW: u32 = 26;
const BESIDE: u32 = 140;
const FONT: &str = "sans-serif";
const COMPUTES: RGBColor = RGBColor(0x1f, 0x5f, 0xa8);
const WAITS: RGBColor = RGBColor(0xe4, 0xdc, 0xcc);
const CHANGE: RGBColor = RGBColor(0xb0, 0x30, 0x30);

/// How far a process was.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
struct Sample {
    /// Seconds since it began.
    at: f64,
    iterations: u64,
    /// Seconds of waiting until then.
    waited: f64,
    /// How often who takes part had changed.
    changes: u32,
}

/// One process: who joins again is another.
#[derive(Debug, Serialize)]
pub struct Timeline {
    #[serde(skip)]
    address: Vec<u8>,
    site: u32,
    /// When it began, in seconds of the run: as late as it can be, by what was heard of it.
    begin: f64,
    samples: Vec<Sample>,
    /// Of so many that come one is kept.
    #[serde(skip)]
    each: usize,
    #[serde(skip)]
    came: usize,
}

impl Timeline {
    fn add(&mut self, heard: f64, progress: &Progress, is_last: bool) {
        let Progress { seconds, iterations, waited, changes, .. } = *progress;
        self.begin = self.begin.min((heard - seconds).max(0.0));
        let sample = Sample { at: seconds, iterations, waited, changes };
        // the same that was heard before, or an older one
        if self.samples.last().is_some_and(|last| last.at >= sample.at) {
            return;
        }
        self.came += 1;
        if !is_last && !self.came.is_multiple_of(self.each) {
            return;
        }
        self.samples.push(sample);
        if self.samples.len() > SAMPLES {
            let mut number = 0;
            self.samples.retain(|_| {
                number += 1;
                number % 2 == 1
            });
            self.each *= 2;
        }
    }

    /// Each sample with the one before it.
    fn pairs(&self) -> impl Iterator<Item = (Sample, Sample)> {
        let first = Sample { at: 0.0, iterations: 0, waited: 0.0, changes: 0 };
        let before = std::iter::once(first).chain(self.samples.iter().copied());
        before.zip(self.samples.iter().copied())
    }

    /// Stretches: from, to, and which share of it was waiting.
    fn stretches(&self) -> impl Iterator<Item = (f64, f64, f64)> {
        self.pairs().map(|(from, to)| {
            let share = (to.waited - from.waited) / (to.at - from.at).max(1e-9);
            (self.begin + from.at, self.begin + to.at, share.clamp(0.0, 1.0))
        })
    }

    /// When others were lost, or joined.
    fn changes(&self) -> impl Iterator<Item = f64> {
        self.pairs().filter(|(from, to)| from.changes != to.changes).map(|(_, to)| self.begin + to.at)
    }
}

/// Those of a run, in the order in which they were first heard of.
#[derive(Debug, Default)]
pub struct Timelines(Vec<Timeline>);

impl Timelines {
    /// What the processes of a view have told of themselves, so many seconds after the run began.
    pub fn add(&mut self, at: f64, view: &View, far: &[Option<Progress>]) {
        for (who, progress) in view.members.iter().zip(far) {
            if let Some(progress) = progress {
                self.of(who).add(at, progress, false);
            }
        }
    }

    /// The last that one of them has told.
    pub fn end(&mut self, at: f64, last: &Did) {
        self.of(&last.who).add(at, &last.progress, true);
    }

    fn of(&mut self, who: &Member) -> &mut Timeline {
        let known = self.0.iter().position(|line| line.address == who.address);
        let number = known.unwrap_or_else(|| {
            self.0.push(Timeline {
                address: who.address.to_vec(),
                site: who.site,
                begin: f64::MAX,
                samples: Vec::new(),
                each: 1,
                came: 0,
            });
            self.0.len() - 1
        });
        &mut self.0[number]
    }

    /// Them all.
    pub fn lines(&self) -> &[Timeline] {
        &self.0
    }

    /// Draws them, one above the other.
    pub fn draw(&self, file: &Path) -> Result<(), String> {
        self.drawn(file).map_err(|why| why.to_string())
    }

    fn drawn(&self, file: &Path) -> Result<(), Box<dyn std::error::Error>> {
        let (rows, ends) =
            (self.0.len(), self.0.iter().filter_map(|line| Some(line.begin + line.samples.last()?.at)));
        let end = ends.fold(1e-3, f64::max);
        let area = SVGBackend::new(file, (WIDE, BESIDE + ROW * rows.max(1) as u32)).into_drawing_area();
        area.fill(&WHITE)?;
        let several_sites = self.0.iter().any(|line| line.site != self.0[0].site);
        let mut chart = ChartBuilder::on(&area)
            .margin(16)
            .margin_right(150)
            .caption(
                "what each process did: blue, it computed; above that, it waited; red, others were lost or joined",
                (FONT, 16),
            )
            .x_label_area_size(48)
            .y_label_area_size(110)
            .build_cartesian_2d(0.0..end * 1.005, 0.0..rows.max(1) as f64)?;
        let named = |row: usize| match several_sites {
            true => format!("{}, site {}", row + 1, self.0[row].site),
            false => format!("{}", row + 1),
        };
        chart
            .configure_mesh()
            .disable_y_axis()
            .disable_y_mesh()
            .x_desc("seconds")
            .axis_desc_style((FONT, 17))
            .label_style((FONT, 14))
            .light_line_style(TRANSPARENT)
            .draw()?;
        for (row, line) in self.0.iter().enumerate() {
            // the first above all others
            let low = (rows - 1 - row) as f64;
            // from below, as much as it computed
            chart.draw_series(line.stretches().flat_map(|(from, to, waited)| {
                let (bottom, top) = (low + 0.12, low + 0.88);
                let level = top - (top - bottom) * waited;
                let field = |bottom: f64, top: f64, colour: RGBColor| {
                    Rectangle::new([(from, bottom), (to, top)], colour.filled())
                };
                [field(bottom, level, COMPUTES), field(level, top, WAITS)]
            }))?;
            let changes =
                line.changes().map(|at| PathElement::new(vec![(at, low + 0.05), (at, low + 0.95)], CHANGE));
            chart.draw_series(changes)?;
            let last = line.samples.last().map_or(0, |last| last.iterations);
            let place = chart.backend_coord(&(0.0, low + 0.62));
            area.draw(&Text::new(named(row), (24, place.1), (FONT, 14)))?;
            let place = chart.backend_coord(&(end * 1.005, low + 0.62));
            area.draw(&Text::new(format!("{last} iterations"), (place.0 + 8, place.1), (FONT, 14)))?;
        }
        area.present()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line() -> Timeline {
        Timeline { address: Vec::new(), site: 0, begin: f64::MAX, samples: Vec::new(), each: 1, came: 0 }
    }

    fn progress(seconds: f64, waited: f64, changes: u32) -> Progress {
        Progress { seconds, waited, changes, iterations: (seconds * 100.0) as u64, ..Progress::default() }
    }

    #[test]
    fn stretches_say_which_share_was_waiting_and_where_others_changed() {
        let mut line = line();
        // the second is heard twice
        for (seconds, waited, changes) in [(1.0, 0.5, 0), (2.0, 0.5, 0), (2.0, 0.5, 0), (4.0, 2.5, 1)] {
            line.add(seconds + 2.1, &progress(seconds, waited, changes), false);
        }
        // heard at once, where the others were heard late
        line.add(7.0, &progress(5.0, 3.5, 1), false);
        let found: Vec<_> = line.stretches().collect();
        assert_eq!(found, [(2.0, 3.0, 0.5), (3.0, 4.0, 0.0), (4.0, 6.0, 1.0), (6.0, 7.0, 1.0)]);
        assert_eq!(line.changes().collect::<Vec<_>>(), [6.0]);
    }

    #[test]
    fn long_runs_keep_few_samples_and_the_last() {
        let mut line = line();
        for number in 1..100_000 {
            line.add(f64::from(number), &progress(f64::from(number), 0.25 * f64::from(number), 0), false);
        }
        line.add(123_460.0, &progress(123_456.0, 30_864.0, 0), true);
        assert!((SAMPLES / 2..=SAMPLES + 1).contains(&line.samples.len()), "{}", line.samples.len());
        assert_eq!(line.samples.last().map(|last| last.at), Some(123_456.0));
        assert!(line.stretches().all(|(_, _, waited)| (waited - 0.25).abs() < 1e-9));
    }
}
