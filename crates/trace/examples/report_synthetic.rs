//! Reports a made-up run: `report_synthetic DIRECTORY [RANKS [STEPS]]`. Serves to look at the page, and to measure how long a report
//! of millions of calls takes.

#[path = "../tests/support/synthetic.rs"]
mod synthetic;

use polyrail_trace::report;
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, usual| arguments.get(at).map_or(Ok(usual), |text| text.parse());
    let out = arguments.first().ok_or("which directory?")?;
    let events = synthetic::Synthetic::new(number(1, 4)? as u32, number(2, 2000)?);
    let start = Instant::now();
    let summary = report::write(&events, out.as_ref(), &report::Options::default())?;
    print!("{summary}");
    println!("in {:.2} s", start.elapsed().as_secs_f64());
    Ok(())
}
