//! Reports a made-up run: `report_synthetic DIRECTORY [RANKS [STEPS [html] [parquet] [perfetto]]]`. Serves to look at the page, and to measure how long a report
//! of millions of calls takes.

#[path = "../tests/support/synthetic.rs"]
mod synthetic;

use polyrail_trace::model::Events as _;
use polyrail_trace::report;
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, usual| arguments.get(at).map_or(Ok(usual), |text| text.parse());
    let out = arguments.first().ok_or("which directory?")?;
    let events = synthetic::Synthetic::new(number(1, 4)? as u32, number(2, 2000)?);
    let wanted = |part: &str| arguments.len() < 4 || arguments.iter().any(|argument| argument == part);
    let options = report::Options {
        html: wanted("html"),
        parquet: wanted("parquet"),
        perfetto: wanted("perfetto"),
        ..report::Options::default()
    };
    let start = Instant::now();
    let mut made = 0u64;
    events.for_each(&mut |_| made += 1)?;
    println!("{made} events made in {:.2} s", start.elapsed().as_secs_f64());
    let start = Instant::now();
    let summary = report::write(&events, out.as_ref(), &options, None)?;
    print!("{summary}");
    println!("in {:.2} s", start.elapsed().as_secs_f64());
    Ok(())
}
