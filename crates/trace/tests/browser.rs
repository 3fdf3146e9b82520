//! Opens a report in a real browser without a screen: nothing may go wrong in it, and the charts must really be drawn. Says
//! SKIPPED where there is no browser (Debian: chromium-headless-shell).

#[path = "support/synthetic.rs"]
mod synthetic;

use polyrail_trace::model::*;
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

/// What both probes begin and end with.
const READY: &str = r##"<script>(async () => {
const pause = (ms) => new Promise((done) => setTimeout(done, ms));
for (let tries = 0; tries < 200 && !document.documentElement.dataset.state; tries++) await pause(50);
await pause(300);
const hidden = document.getElementById('hidden');
if (hidden) { hidden.remove(); dispatchEvent(new Event('resize')); await pause(500); }
const seen = { state: document.documentElement.dataset.state || 'nothing', problems };
const where = () => document.getElementById('where')?.textContent;
const main = document.querySelector('#timeline .rows canvas');
"##;
const END: &str = r##"
const out = document.createElement('pre');
out.id = 'probe';
out.textContent = btoa(unescape(encodeURIComponent(JSON.stringify(seen))));
document.body.append(out);
})();</script>"##;

/// Writes down what is to be seen, at first and where it is scrolled to.
const LOOK: &str = r##"
const tones = (canvas) => {
  const found = new Set();
  const image = new Uint32Array(canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.buffer);
  for (let i = 0; i < image.length; i += 7) if (image[i] >>> 24) found.add(image[i]);
  return found.size;
};
seen.drawn = {};
for (const box of ['matrix-chart', 'waits-chart', 'sizes-chart', 'gaps-chart', 'tcp-chart', 'timeline', 'traffic', 'chosen-traffic'])
  seen.drawn[box] = [...document.querySelectorAll(`#${box} canvas`)].map(tones);
seen.rows = {};
for (const table of document.querySelectorAll('table[id]')) seen.rows[table.id] = table.tBodies[0].rows.length;
Object.assign(seen, {
  heading: document.querySelector('h1')?.textContent, keys: [...document.querySelectorAll('#keys .label')].map((each) => each.textContent),
  sections: [...document.querySelectorAll('section')].map((each) => each.id), warnings: document.querySelectorAll('#warnings li').length,
  suggestions: document.querySelectorAll('.suggestion').length, images: document.images.length, hacked: window.hacked || 0,
  wide: document.documentElement.scrollWidth - innerWidth, width: innerWidth, nas: document.body.innerText.match(/\bNAS\b|CG MG|BT SP|FT IS/g),
  top: main && document.querySelector('#timeline .strip').getBoundingClientRect().top + scrollY, across: main && main.getBoundingClientRect().width,
});
// what is wider than the screen and is not in a box that scrolls
seen.beyond = [...document.querySelectorAll('#page *')].filter((each) => each.getBoundingClientRect().right > innerWidth + 1 && !each.closest('.table')).map((each) => each.outerHTML.slice(0, 120));
// text of which the contrast is under 4.5 to 1
const rgb = (text) => { const n = text.match(/[\d.]+/g).map(Number); return text.startsWith('color(') ? [...n.slice(0, 3).map((c) => c * 255), n[3] ?? 1] : [...n.slice(0, 3), n[3] ?? 1]; };
const light = (c) => { const [r, g, b] = c.slice(0, 3).map((v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4)); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
const ground = (element) => { for (let at = element; at; at = at.parentElement) { const tone = rgb(getComputedStyle(at).backgroundColor); if (tone[3] > 0.8) return tone; } return [255, 255, 255]; };
const pale = new Set();
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const element = walker.currentNode.parentElement;
  if (!walker.currentNode.textContent.trim() || ['SCRIPT', 'STYLE', 'NOSCRIPT'].includes(element.tagName) || !element.getClientRects().length) continue;
  const [a, b] = [light(rgb(getComputedStyle(element).color)), light(ground(element))];
  const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  if (contrast < 4.5) pale.add(`${element.tagName}.${element.className}: ${contrast.toFixed(2)}`);
}
seen.pale = [...pale];
// pictures that say nothing to who does not see them, and what cannot be reached by keys
seen.mute = [...document.querySelectorAll('canvas')].filter((each) => !each.getAttribute('aria-label') && !each.closest('[aria-label], [aria-hidden]')).map((each) => each.outerHTML);
seen.nameless = [...document.querySelectorAll('button, input, a')].filter((each) => !each.textContent.trim() && !each.getAttribute('aria-label') && !each.labels?.length).map((each) => each.outerHTML);
"##;

/// Uses the page as people do, and writes down what came of it.
const USE: &str = r##"
const rows = () => [...document.querySelectorAll('#connections-table tbody tr')];
const names = () => rows().map((row) => row.querySelector('button.row').firstChild.textContent);
const chosen = () => document.getElementById('chosen-title').textContent;
const selection = () => document.getElementById('selection').textContent;
const head = (title) => [...document.querySelectorAll('#connections-table thead th')].find((each) => each.textContent.startsWith(title));
const find = document.getElementById('find');
const key = (target, name) => target.dispatchEvent(new KeyboardEvent('keydown', { key: name, bubbles: true, cancelable: true }));
const hash = () => Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
// longer than the address waits for more changes
const settle = () => pause(500);
const picture = () => [...main.getContext('2d').getImageData(0, 0, main.width, main.height).data].reduce((all, byte, i) => (all * 31 + byte * (i % 251)) % 1000003, 7);

const box = main.getBoundingClientRect();
main.dispatchEvent(new PointerEvent('pointermove', { clientX: box.left + 400, clientY: box.top + 5 }));
seen.hover = document.getElementById('tip').textContent;
seen.all = names().length;
// found by port, and by words in any order
find.value = names()[0].match(/:(\d+)/)[1];
find.dispatchEvent(new Event('input'));
seen.found = [find.value, names()];
find.value = 'no such thing';
find.dispatchEvent(new Event('input'));
seen.lost = names().length;
find.value = 'TCP';
find.dispatchEvent(new Event('input'));
head('Connection').querySelector('button').click();
seen.sorted = [names(), head('Connection').getAttribute('aria-sort')];
await settle();
seen.searched = hash();

// another connection, by its row
seen.before = chosen();
const other = [...document.querySelectorAll('#connections-table button.row')].find((each) => each.firstChild.textContent !== seen.before);
seen.wanted = other.firstChild.textContent;
other.focus();
other.click();
await settle();
seen.stays = document.activeElement === other;
seen.after = [chosen(), rows().filter((row) => row.getAttribute('aria-current')).map((row) => row.querySelector('button.row').firstChild.textContent), hash()];

// keys: from row to row, and in the time line
const first = document.querySelector('#connections-table button.row');
first.focus();
key(first, 'ArrowDown');
seen.focused = document.activeElement === document.querySelectorAll('#connections-table button.row')[1];
seen.whole = [where(), selection()];
main.focus();
seen.focusable = document.activeElement === main;
for (let i = 0; i < 3; i++) key(main, '+');
await settle();
seen.zoomed = [where(), selection(), hash()];
key(main, 'ArrowRight');
await settle();
seen.moved = [where(), main.getAttribute('aria-label')];
// back, step by step
history.back();
await settle();
seen.backOnce = where();
history.back();
await settle();
seen.backTwice = [where(), chosen()];

// two fingers
const finger = (type, id, x) => main.dispatchEvent(new PointerEvent(type, { pointerId: id, pointerType: 'touch', clientX: box.left + x, clientY: box.top + 8, bubbles: true, isPrimary: id === 5 }));
finger('pointerdown', 5, 500); finger('pointerdown', 6, 600);
finger('pointermove', 5, 400); finger('pointermove', 6, 700);
finger('pointerup', 5, 400); finger('pointerup', 6, 700);
await pause(100);
seen.pinched = where();

// arrows where so few are in view that they can be told apart
history.pushState(null, '', '#from=1000000000&to=1016000000');
dispatchEvent(new PopStateEvent('popstate'));
await pause(200);
seen.led = where();
const arrows = document.querySelector('.tools button[aria-pressed]');
const withArrows = picture();
arrows.click();
await pause(100);
seen.arrows = withArrows !== picture();

// all that can be opened or pressed
for (const details of document.querySelectorAll('details')) details.open = true;
await pause(100);
seen.tables = [...document.querySelectorAll('details tbody')].map((body) => body.rows.length);
for (const button of document.querySelectorAll('.tools button, .choice button, th button')) { button.click(); await pause(20); }
for (const row of [...document.querySelectorAll('tr.click')].slice(0, 3)) { row.click(); await pause(50); }
for (const link of document.querySelectorAll('nav a')) link.click();
await pause(200);
"##;

/// Only where it is, what is chosen, and how the table is.
const STATE: &str = r##"
Object.assign(seen, { where: where(), chosen: document.getElementById('chosen-title').textContent, find: document.getElementById('find').value,
  rows: document.querySelectorAll('#connections-table tbody tr').length, sorted: document.querySelector('#connections-table th[aria-sort$=ending]').textContent });
"##;

fn browser() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).flat_map(|dir| NAMES.map(|name| dir.join(name))).find(|file| file.is_file())
}

/// What the page is until the probe shows it: without a size, as in a tab or a frame that is not in front.
const HIDDEN: &str = "<style id=\"hidden\">body { display: none }</style>";

/// How a page is opened.
#[derive(Clone, Copy)]
struct Window {
    size: (u32, u32),
    dark: bool,
    /// What stands in the page's head before all else.
    head: &'static str,
    /// What the address says behind "#".
    fragment: &'static str,
    /// Beside the figures of another run: its own.
    against: bool,
}

const USUAL: Window = Window { size: (1366, 768), dark: false, head: "", fragment: "", against: false };

/// What a probe saw in a report of a run; `None` where there is no browser.
#[track_caller]
fn open(events: &dyn Events, window: Window, probe: &str) -> Option<serde_json::Value> {
    let Some(browser) = browser() else {
        polyrail_testing::lacking(format_args!("a browser ({})", NAMES.join(", ")));
        return None;
    };
    let dir = tempfile::tempdir().unwrap();
    let options = report::Options { parquet: false, perfetto: false, ..report::Options::default() };
    let other = window.against.then(|| report::figures(events, options.settings).unwrap());
    report::write(events, dir.path(), &options, other.as_deref()).unwrap();
    let page = std::fs::read_to_string(dir.path().join("report.html")).unwrap();
    let probed = page.replacen("<head>", &format!("<head>{WATCH}{}", window.head), 1);
    let end = probed.rfind("</body>").unwrap();
    let file = dir.path().join("probed.html");
    std::fs::write(&file, format!("{}{READY}{probe}{END}{}", &probed[..end], &probed[end..])).unwrap();
    let dom = run(&browser, &file, dir.path(), window);
    let text = dom.split("<pre id=\"probe\">").nth(1).and_then(|rest| rest.split("</pre>").next());
    let text = text.unwrap_or_else(|| panic!("the page did not get to its end: {}", dom.len()));
    use base64::Engine as _;
    let json = base64::engine::general_purpose::STANDARD.decode(text).unwrap();
    let seen: serde_json::Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(seen["problems"], serde_json::json!([]), "{seen:#}");
    assert_eq!(seen["state"], "ready", "{seen:#}");
    Some(seen)
}

fn run(browser: &Path, file: &Path, dir: &Path, window: Window) -> String {
    let out = dir.join("dom");
    let mut child = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", "--virtual-time-budget=60000"])
        .arg(format!("--window-size={},{}", window.size.0, window.size.1))
        .arg(format!("--blink-settings=preferredColorScheme={}", if window.dark { 0 } else { 1 }))
        .arg(format!("--user-data-dir={}", dir.join("profile").display()))
        .arg(format!("file://{}{}", file.display(), window.fragment))
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

/// What holds of every page: nothing is run that was traced, nothing is too wide, too pale or without words.
fn check(seen: &serde_json::Value) {
    assert_eq!((&seen["images"], &seen["hacked"]), (&0.into(), &0.into()), "{seen:#}");
    assert!(seen["wide"].as_i64().unwrap() <= 0, "the page is wider than the screen: {seen:#}");
    for what in ["beyond", "pale", "mute", "nameless"] {
        assert_eq!(seen[what], serde_json::json!([]), "{what}: {seen:#}");
    }
}

fn check_charts(seen: &serde_json::Value) {
    for chart in ["matrix-chart", "waits-chart", "sizes-chart", "gaps-chart", "tcp-chart"] {
        assert!(colours(seen, chart).iter().all(|&colours| colours > 12), "{chart} is blank: {seen:#}");
    }
    for (lines, canvases) in [("timeline", 4), ("traffic", 1), ("chosen-traffic", 1)] {
        let timeline = colours(seen, lines);
        assert!(
            timeline.len() == canvases && timeline.iter().all(|&colours| colours > 4),
            "{lines}: {seen:#}"
        );
    }
}

fn hostile() -> synthetic::Synthetic {
    let mut events = synthetic::Synthetic::new(4, 400);
    let run = events.run_mut();
    run.warnings.push("<img src=x onerror='window.hacked=1'> 3 programs could not be seen".into());
    run.processes[2].command = vec!["</script><script>window.hacked = 1</script>".into()];
    run.threads[1].name = "<svg onload=hacked=1>".into();
    run.hosts[1].name = "</title><script>window.hacked=1</script>".into();
    events
}

#[test]
fn a_report_is_drawn_on_screens_of_all_widths_light_and_dark() {
    let events = hostile();
    for width in [390, 768, 1366, 1920] {
        for dark in [false, true] {
            let height = if width < 700 { 844 } else { 768 };
            let Some(seen) =
                open(&events, Window { size: (width, height), dark, against: true, ..USUAL }, LOOK)
            else {
                return;
            };
            assert_eq!(seen["width"], width, "the browser does not take this width");
            check(&seen);
            check_charts(&seen);
            let across = seen["across"].as_f64().unwrap();
            assert!(across >= f64::from(width) - 100.0, "the time line leaves the window empty: {seen:#}");
            let rows = &seen["rows"];
            assert_eq!(
                (&rows["connections-table"], &rows["processes-table"]),
                (&6.into(), &4.into()),
                "{rows}"
            );
            assert!(rows["against-table"].as_u64().is_some_and(|rows| rows > 10), "{rows}");
            assert_eq!(seen["warnings"], 1);
            assert!(seen["suggestions"].as_u64().unwrap() >= 2, "{seen:#}");
            assert!(
                seen["heading"].as_str().unwrap().starts_with("An MPI program of 4 processes on 2 hosts")
            );
        }
    }
}

#[test]
fn the_time_line_is_on_the_first_screen_and_classes_are_for_mpi_programs() {
    let Some(mpi) = open(&synthetic::Synthetic::new(4, 400), USUAL, LOOK) else { return };
    check(&mpi);
    assert!(mpi["top"].as_f64().unwrap() < 400.0, "{mpi:#}");
    assert!(
        mpi["sections"].as_array().unwrap().contains(&"classes".into()) && !mpi["nas"].is_null(),
        "{mpi:#}"
    );
    let Some(server) = open(&server(), USUAL, LOOK) else { return };
    check(&server);
    assert!(server["top"].as_f64().unwrap() < 400.0, "{server:#}");
    assert!(server["heading"].as_str().unwrap().starts_with("A server, 1 process on 1 host"), "{server:#}");
    assert!(
        !server["sections"].as_array().unwrap().contains(&"classes".into()) && server["nas"].is_null(),
        "{server:#}"
    );
    let keys = server["keys"].as_array().unwrap();
    let has = |what: &str| keys.iter().any(|key| key.as_str().unwrap().contains(what));
    assert!(has("answers a second") && has("at once at most") && has("from question to answer"), "{keys:?}");
}

/// One process that answers 500 questions on each of five connections.
fn server() -> InMemory {
    let second = 1_000_000_000;
    let socket = |port: u16| Socket {
        kind: Kind::Tcp,
        accepted: true,
        begun: true,
        local: Some(([127, 0, 0, 1], 6379).into()),
        remote: Some(([127, 0, 0, 1], port).into()),
        span: (0, second),
        ..Socket::default()
    };
    let process = Process {
        pid: 7,
        command: vec!["redis-server".into()],
        span: (0, second),
        status: Some(0),
        ..Process::default()
    };
    let run = Run {
        command: vec!["redis-server".into()],
        status: Some(0),
        span: (0, second),
        hosts: vec![Host { name: "here".into(), ..Host::default() }],
        processes: vec![process],
        threads: vec![Thread::default()],
        sockets: (0..5).map(|n| socket(40_000 + n)).collect(),
        ..Run::default()
    };
    let call = |call, start, took, socket, bytes: u32| {
        Event::Call(CallEvent {
            thread: 0,
            call,
            start,
            took,
            inside: took,
            calls: 1,
            socket,
            result: bytes as i32,
            bytes,
            asked: bytes,
            to: None,
            in_mpi: false,
            peeked: false,
        })
    };
    let events = (0..2500u64).flat_map(|n| {
        let (at, socket) = (n * 400_000, Some((n % 5) as u32));
        [
            call(Call::EpollWait, at, 300_000, None, 1),
            call(Call::Read, at + 301_000, 2_000, socket, 40),
            call(Call::Write, at + 310_000, 5_000, socket, 5),
        ]
    });
    InMemory { events: events.collect(), run }
}

#[test]
fn a_report_can_be_used() {
    let Some(seen) = open(&hostile(), USUAL, USE) else { return };
    let text = |at: &serde_json::Value| at.as_str().unwrap().to_owned();
    assert!(text(&seen["hover"]).starts_with("rank 0"), "{seen:#}");
    let (port, found) = (text(&seen["found"][0]), seen["found"][1].as_array().unwrap());
    assert!(
        !found.is_empty() && found.len() < 6 && found.iter().all(|name| text(name).contains(&port)),
        "{seen:#}"
    );
    assert_eq!((&seen["all"], &seen["lost"]), (&6.into(), &0.into()));
    let sorted: Vec<String> = seen["sorted"][0].as_array().unwrap().iter().map(text).collect();
    assert!(sorted.is_sorted() && sorted.len() == 6 && seen["sorted"][1] == "ascending", "{sorted:?}");
    assert_eq!((&seen["searched"]["find"], &seen["searched"]["sort"]), (&"TCP".into(), &"0u".into()));
    // a row chooses its connection, and the address keeps it
    assert_ne!(seen["before"], seen["wanted"]);
    assert_eq!((&seen["after"][0], &seen["after"][1][0]), (&seen["wanted"], &seen["wanted"]));
    assert!(seen["after"][2]["connection"].is_string());
    assert_eq!(seen["stays"], true, "who chooses by keys stays where he is");
    // keys
    assert_eq!((&seen["focused"], &seen["focusable"]), (&true.into(), &true.into()));
    assert_ne!(seen["whole"][0], seen["zoomed"][0]);
    assert_ne!(seen["whole"][1], seen["zoomed"][1], "the figures are those of what is in view");
    assert!(seen["zoomed"][2]["from"].is_string() && seen["zoomed"][2]["to"].is_string());
    assert_ne!(seen["zoomed"][0], seen["moved"][0]);
    assert!(text(&seen["moved"][1]).contains("sent"), "{seen:#}");
    // the way back
    assert_eq!(seen["backOnce"], seen["zoomed"][0]);
    assert_eq!((&seen["backTwice"][0], &seen["backTwice"][1]), (&seen["whole"][0], &seen["wanted"]));
    assert_ne!(seen["pinched"], seen["backTwice"][0]);
    assert!(text(&seen["led"]).starts_with("1.00000 s to 1.01600 s"), "{seen:#}");
    assert_eq!(seen["arrows"], true, "arrows change the picture");
    let tables = seen["tables"].as_array().unwrap();
    assert!(tables.len() >= 8 && tables.iter().all(|rows| rows.as_u64().unwrap() > 0), "{tables:?}");
}

#[test]
fn an_address_leads_to_what_it_was_made_of() {
    let fragment = "#from=1000000000&to=2000000000&connection=3&way=back&find=rank+2&sort=0d";
    let Some(seen) = open(&synthetic::Synthetic::new(4, 400), Window { fragment, ..USUAL }, STATE) else {
        return;
    };
    assert!(seen["where"].as_str().unwrap().starts_with("1.000 s to 2.000 s"), "{seen:#}");
    assert_eq!((&seen["find"], &seen["sorted"]), (&"rank 2".into(), &"Connection ↓".into()));
    assert_eq!(seen["rows"], 3, "{seen:#}");
    // what is no state, or another report's, does no harm
    let fragment = "#from=-5&to=abc&connection=999&way=up&sort=77d&x=%ZZ";
    let Some(odd) = open(&synthetic::Synthetic::new(4, 400), Window { fragment, ..USUAL }, STATE) else {
        return;
    };
    assert_eq!(odd["rows"], 6, "{odd:#}");
}

#[test]
fn a_page_that_is_opened_hidden_is_drawn_when_it_is_shown() {
    let window = Window { head: HIDDEN, ..USUAL };
    let Some(seen) = open(&synthetic::Synthetic::new(4, 400), window, LOOK) else { return };
    check(&seen);
    check_charts(&seen);
    assert_eq!(seen["rows"]["connections-table"], 6, "{seen:#}");
}

#[test]
fn a_run_of_nothing_is_told_as_such() {
    let run = Run { broke_off: true, ..Run::default() };
    let Some(seen) = open(&InMemory { run, events: vec![] }, USUAL, LOOK) else { return };
    check(&seen);
    assert_eq!(seen["warnings"], 2);
}
