//! Opens a report in a real browser without a screen: nothing may go wrong in it, and the charts must really be drawn. Says
//! SKIPPED where there is no browser (Debian: chromium-headless-shell).

#[path = "support/synthetic.rs"]
mod synthetic;

use polyrail_trace::model::{Events, InMemory};
use polyrail_trace::report;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const NAMES: [&str; 5] =
    ["chromium-headless-shell", "chromium", "google-chrome", "google-chrome-stable", "chrome"];

/// Runs before anything of the page.
const WATCH: &str = "<script>window.problems = [];
addEventListener('error', (event) => problems.push('error: ' + event.message));
addEventListener('unhandledrejection', (event) => problems.push('rejection: ' + event.reason));
addEventListener('securitypolicyviolation', (event) => problems.push('policy: ' + event.violatedDirective + ' ' + event.blockedURI));
for (const how of ['error', 'warn']) console[how] = (...what) => problems.push(how + ': ' + what.join(' '));</script>";

/// Looks at the page when it is done, uses it, and writes down what it saw.
const PROBE: &str = r##"<script>(async () => {
const pause = (ms) => new Promise((done) => setTimeout(done, ms));
for (let tries = 0; tries < 200 && !document.documentElement.dataset.state; tries++) await pause(50);
await pause(300);
const tones = (canvas) => {
  const seen = new Set();
  const image = new Uint32Array(canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.buffer);
  for (let i = 0; i < image.length; i += 7) if (image[i] >>> 24) seen.add(image[i]);
  return seen.size;
};
const drawn = {};
for (const box of ['matrix-chart', 'waits-chart', 'sizes-chart', 'gaps-chart', 'tcp-chart', 'timeline'])
  drawn[box] = [...document.querySelectorAll(`#${box} canvas`)].map(tones);
const rows = {};
for (const table of document.querySelectorAll('table')) rows[table.id] = table.tBodies[0].rows.length;
const where = () => document.getElementById('where')?.textContent;
const before = where();
const tip = document.getElementById('tip');
const main = document.querySelector('#timeline .rows canvas');
if (main) {
  const box = main.getBoundingClientRect();
  main.dispatchEvent(new PointerEvent('pointermove', { clientX: box.left + 155, clientY: box.top + 5 }));
}
const hover = tip.textContent;
for (const button of document.querySelectorAll('.tools button, .choice button, th button')) { button.click(); await pause(20); }
const zoomIn = document.querySelector('.tools button');
for (let i = 0; zoomIn && i < 8; i++) zoomIn.click();
await pause(100);
const zoomed = where();
for (const row of [...document.querySelectorAll('tr.click')].slice(0, 3)) { row.click(); await pause(100); }
const select = document.querySelector('#time select');
if (select) { select.selectedIndex = select.options.length - 1; select.dispatchEvent(new Event('change')); await pause(200); }
const seen = {
  state: document.documentElement.dataset.state || 'nothing', problems, drawn, rows, before, zoomed, hover,
  heading: document.querySelector('h1')?.textContent, warnings: document.querySelectorAll('#warnings li').length,
  suggestions: document.querySelectorAll('.suggestion').length, images: document.images.length, hacked: window.hacked || 0,
  wide: document.documentElement.scrollWidth - innerWidth, width: innerWidth,
};
const out = document.createElement('pre');
out.id = 'probe';
out.textContent = btoa(unescape(encodeURIComponent(JSON.stringify(seen))));
document.body.append(out);
})();</script>"##;

fn browser() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).flat_map(|dir| NAMES.map(|name| dir.join(name))).find(|file| file.is_file())
}

/// What the probe saw in a report of a run; `None` where there is no browser.
#[track_caller]
fn open(events: &dyn Events, size: &str, dark: bool) -> Option<serde_json::Value> {
    let Some(browser) = browser() else {
        polyrail_skip::lacking(format_args!("a browser ({})", NAMES.join(", ")));
        return None;
    };
    let dir = tempfile::tempdir().unwrap();
    let options = report::Options { parquet: false, perfetto: false, ..report::Options::default() };
    report::write(events, dir.path(), &options).unwrap();
    let page = std::fs::read_to_string(dir.path().join("report.html")).unwrap();
    let probed = page.replacen("<head>", &format!("<head>{WATCH}"), 1);
    let end = probed.rfind("</body>").unwrap();
    let file = dir.path().join("probed.html");
    std::fs::write(&file, format!("{}{PROBE}{}", &probed[..end], &probed[end..])).unwrap();
    let dom = run(&browser, &file, dir.path(), size, dark);
    let text = dom.split("<pre id=\"probe\">").nth(1).and_then(|rest| rest.split("</pre>").next());
    let text = text.unwrap_or_else(|| panic!("the page did not get to its end: {}", dom.len()));
    use base64::Engine as _;
    let json = base64::engine::general_purpose::STANDARD.decode(text).unwrap();
    Some(serde_json::from_slice(&json).unwrap())
}

fn run(browser: &Path, file: &Path, dir: &Path, size: &str, dark: bool) -> String {
    let out = dir.join("dom");
    let mut child = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", "--virtual-time-budget=60000"])
        .arg(format!("--window-size={size}"))
        .arg(format!("--blink-settings=preferredColorScheme={}", if dark { 0 } else { 1 }))
        .arg(format!("--user-data-dir={}", dir.join("profile").display()))
        .arg(format!("file://{}", file.display()))
        .stdout(std::fs::File::create(&out).unwrap())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > Duration::from_secs(120) {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("the browser did not end");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    std::fs::read_to_string(out).unwrap()
}

fn colours(seen: &serde_json::Value, chart: &str) -> Vec<u64> {
    let counts = seen["drawn"][chart].as_array().unwrap_or_else(|| panic!("no {chart}"));
    counts.iter().map(|count| count.as_u64().unwrap()).collect()
}

fn check(seen: &serde_json::Value) {
    assert_eq!(seen["problems"], serde_json::json!([]), "{seen:#}");
    assert_eq!(
        (&seen["state"], &seen["images"], &seen["hacked"]),
        (&"ready".into(), &0.into(), &0.into()),
        "{seen:#}"
    );
    assert!(seen["wide"].as_i64().unwrap() <= 0, "the page is wider than the screen: {seen:#}");
}

#[test]
fn a_report_is_drawn_and_can_be_used() {
    let mut events = synthetic::Synthetic::new(4, 400);
    let run = events.run_mut();
    run.warnings.push("<img src=x onerror='window.hacked=1'> 3 programs could not be seen".into());
    run.processes[2].command = vec!["</script><script>window.hacked = 1</script>".into()];
    run.threads[1].name = "<svg onload=hacked=1>".into();
    run.hosts[1].name = "</title><script>window.hacked=1</script>".into();
    for (size, dark) in [("1366,768", false), ("1440,900", true)] {
        let Some(seen) = open(&events, size, dark) else { return };
        check(&seen);
        for chart in ["matrix-chart", "waits-chart", "sizes-chart", "gaps-chart", "tcp-chart"] {
            assert!(colours(&seen, chart).iter().all(|&colours| colours > 12), "{chart} is blank: {seen:#}");
        }
        let timeline = colours(&seen, "timeline");
        assert!(timeline.len() == 3 && timeline.iter().all(|&colours| colours > 4), "{timeline:?}");
        let rows = &seen["rows"];
        assert_eq!((&rows["connections-table"], &rows["processes-table"]), (&6.into(), &4.into()), "{rows}");
        assert_eq!(seen["warnings"], 1);
        assert!(seen["suggestions"].as_u64().unwrap() >= 2, "{seen:#}");
        assert!(seen["heading"].as_str().unwrap().starts_with("An MPI program of 4 processes on 2 hosts"));
        assert_ne!(seen["before"], seen["zoomed"]);
        assert!(seen["hover"].as_str().unwrap().starts_with("rank 0"), "{seen:#}");
    }
}

#[test]
fn a_run_of_nothing_is_told_as_such() {
    let Some(seen) = open(&InMemory::default(), "1366,768", false) else { return };
    check(&seen);
    assert_eq!(seen["warnings"], 2);
}
