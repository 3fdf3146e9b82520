//! The live picture of `polyrail trace --live`: connections by rate, with window and retransmissions.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use polyrail_trace::diag::monotonic;
use polyrail_trace::live::{Live, Row as Connection};
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind};
use ratatui::layout::{Alignment, Constraint, Layout};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Row, Table};

/// How often it is drawn.
const PERIOD: Duration = Duration::from_millis(500);
const HEADING: [&str; 13] = [
    "HOST", "PID", "PROGRAM", "NEAR", "FAR", "OUT MB/s", "IN MB/s", "CWND", "SSTHRESH", "RTT ms", "RESENT",
    "RTO", "CONTROL",
];
/// The first column of numbers; they go on to the last but one.
const NUMBERS: std::ops::RangeInclusive<usize> = 5..=11;

/// The picture, until it is dropped: then the terminal is as it was.
pub struct Screen {
    live: Live,
    rows: Vec<Connection>,
    looked: u64,
    next: Instant,
    first: usize,
    begun: Instant,
    terminal: ratatui::DefaultTerminal,
}

impl Screen {
    /// Takes the terminal.
    ///
    /// # Errors
    /// It is none, or cannot be drawn upon.
    pub fn open(run: &Path) -> io::Result<Screen> {
        let now = Instant::now();
        let looked = monotonic()?;
        let terminal = ratatui::try_init()?;
        Ok(Screen {
            live: Live::new(run),
            rows: Vec::new(),
            looked,
            next: now,
            first: 0,
            begun: now,
            terminal,
        })
    }

    /// Whether it is time to draw.
    pub fn is_due(&self) -> bool {
        Instant::now() >= self.next
    }

    /// Looks and draws.
    ///
    /// # Errors
    /// The terminal is gone.
    pub fn draw(&mut self) -> io::Result<()> {
        self.next = Instant::now() + PERIOD;
        let now = monotonic()?;
        self.rows = self.live.look(self.looked, now);
        self.looked = now;
        self.keys()?;
        let Screen { rows, first, begun, terminal, .. } = self;
        terminal.draw(|frame| draw(frame, rows, first, begun.elapsed()))?;
        Ok(())
    }

    fn keys(&mut self) -> io::Result<()> {
        while event::poll(Duration::ZERO)? {
            let Event::Key(key) = event::read()? else { continue };
            if key.kind == KeyEventKind::Release {
                continue;
            }
            match key.code {
                KeyCode::Up => self.first = self.first.saturating_sub(1),
                KeyCode::Down => self.first += 1,
                KeyCode::PageUp => self.first = self.first.saturating_sub(10),
                KeyCode::PageDown => self.first += 10,
                // in raw mode the terminal does not make a signal of it
                KeyCode::Char('c') if key.modifiers.contains(event::KeyModifiers::CONTROL) => {
                    let own = nix::unistd::Pid::this();
                    let _ = nix::sys::signal::kill(own, nix::sys::signal::Signal::SIGINT);
                }
                _ => {}
            }
        }
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

fn cells(row: &Connection) -> Vec<String> {
    let tcp = &row.tcp;
    let threshold = if tcp.ssthresh >= 0x7fff_ffff { "-".into() } else { tcp.ssthresh.to_string() };
    let control = String::from_utf8_lossy(&tcp.congestion).trim_end_matches('\0').to_string();
    vec![
        row.host.clone(),
        row.pid.to_string(),
        row.program.clone(),
        row.local.to_string(),
        row.remote.to_string(),
        format!("{:.2}", row.out / 1e6),
        format!("{:.2}", row.into / 1e6),
        tcp.cwnd.to_string(),
        threshold,
        format!("{:.2}", f64::from(tcp.rtt) / 1e3),
        tcp.total_retrans.to_string(),
        tcp.total_rto.to_string(),
        control,
    ]
}

fn draw(frame: &mut Frame<'_>, rows: &[Connection], first: &mut usize, time: Duration) {
    let areas = Layout::vertical([Constraint::Length(1), Constraint::Min(1)]).split(frame.area());
    // a sum of nothing is -0.0
    let out = rows.iter().map(|row| row.out).fold(0.0, std::ops::Add::add) / 1e6;
    let resent = rows.iter().map(|row| u64::from(row.tcp.total_retrans)).sum::<u64>();
    let title = format!(
        "polyrail trace   {} s   {} connections   {out:.1} MB/s   {resent} segments resent   arrows scroll, ^C interrupts the command",
        time.as_secs(),
        rows.len()
    );
    frame.render_widget(Line::styled(title, Style::new().add_modifier(Modifier::BOLD)), areas[0]);
    let room = usize::from(areas[1].height).saturating_sub(1);
    *first = (*first).min(rows.len().saturating_sub(room));
    let cells: Vec<Vec<String>> = rows.iter().map(cells).collect();
    let width = |at: usize| {
        let longest = cells.iter().map(|row| row[at].chars().count()).chain([HEADING[at].len()]).max();
        Constraint::Length(longest.unwrap_or(0) as u16)
    };
    let line = |row: Vec<&str>| {
        Row::new(row.into_iter().enumerate().map(|(at, cell)| {
            let side = if NUMBERS.contains(&at) { Alignment::Right } else { Alignment::Left };
            Cell::from(Line::raw(cell.to_owned()).alignment(side))
        }))
    };
    let shown = cells.iter().zip(rows).skip(*first).take(room).map(|(row, connection)| {
        let trouble = connection.tcp.ca_state >= 3;
        let style = if trouble { Style::new().fg(Color::Red) } else { Style::new() };
        line(row.iter().map(String::as_str).collect()).style(style)
    });
    let heading = line(HEADING.to_vec()).style(Style::new().add_modifier(Modifier::REVERSED));
    frame.render_widget(Table::new(shown, (0..HEADING.len()).map(width)).header(heading), areas[1]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use polyrail_trace::model::TcpSample;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn picture(rows: &[Connection], width: u16, height: u16, first: &mut usize) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, rows, first, Duration::from_secs(3))).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn it_shows_windows_and_fits_any_terminal() {
        let row = |port: u16| Connection {
            host: "a".into(),
            pid: 7,
            program: "heat".into(),
            local: ([10, 0, 0, 1], port).into(),
            remote: ([10, 0, 0, 2], 80).into(),
            out: 12.5e6,
            into: 0.0,
            tcp: TcpSample {
                cwnd: 321,
                ssthresh: 0x7fff_ffff,
                total_retrans: 44,
                rtt: 20_100,
                ..TcpSample::default()
            },
        };
        let rows: Vec<Connection> = (1..=40).map(row).collect();
        let shown = picture(&rows, 160, 12, &mut 0);
        for text in
            ["40 connections", "500.0 MB/s", "1760 segments resent", "12.50", "321", "20.10", "10.0.0.1:1 "]
        {
            assert!(shown.contains(text), "{text} is not in\n{shown}");
        }
        assert!(picture(&rows, 160, 12, &mut 1000).contains("10.0.0.1:40"));
        for (width, height) in [(1, 1), (10, 3), (300, 100)] {
            picture(&rows, width, height, &mut 0);
        }
        assert!(picture(&[], 160, 12, &mut 0).contains(" 0.0 MB/s"), "before the first connection");
    }
}
