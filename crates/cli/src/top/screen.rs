//! The live picture in a terminal. Endpoints are asked by a thread of its own, so that keys are heard while one is silent.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

use polyrail_rails::top::Answer;
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Alignment, Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row, Table};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::figures::{HEADING, NUMBERS, OPERATIONS, View};
use super::{Args, PERIOD, ask, nobody};
use crate::table;

/// How soon a signal to end is heard.
const LOOK: Duration = Duration::from_millis(100);

/// What the keys change.
#[derive(Default)]
struct State {
    view: View,
    before: Vec<Answer>,
    paused: bool,
    /// What to say where there is nobody.
    nobody: &'static str,
    /// There was an answer, or that there is nobody.
    asked: bool,
    /// The first row that is shown.
    top: usize,
}

/// Shows it until somebody has seen enough. The terminal is restored however this ends.
pub fn run(args: &Args) -> io::Result<()> {
    let end = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&end))?;
    }
    let answers = asker(args.clone());
    let mut terminal = ratatui::try_init()?;
    let mut state = State { nobody: nobody(args), ..State::default() };
    let outcome = loop {
        match answers.try_recv() {
            Ok(Ok(answers)) => state.take(answers),
            Ok(Err(error)) => break Err(error),
            Err(TryRecvError::Disconnected) => break Err(io::Error::other("nobody asks any more")),
            Err(TryRecvError::Empty) => {}
        }
        if let Err(error) = terminal.draw(|frame| state.draw(frame)) {
            break Err(error);
        }
        match state.keys() {
            Ok(false) if !end.load(Ordering::Relaxed) => {}
            Ok(_) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    ratatui::restore();
    outcome
}

fn asker(args: Args) -> Receiver<io::Result<Vec<Answer>>> {
    let (to, from) = sync_channel(1);
    spawn(move || {
        loop {
            let begun = Instant::now();
            if to.send(ask(&args)).is_err() {
                return;
            }
            sleep(PERIOD.saturating_sub(begun.elapsed()));
        }
    });
    from
}

impl State {
    fn take(&mut self, answers: Vec<Answer>) {
        self.asked = true;
        if !self.paused {
            self.view = View::new(&self.before, &answers);
        }
        self.before = answers;
    }

    /// Acts on keys, waiting a little for the first. True: that was enough.
    fn keys(&mut self) -> io::Result<bool> {
        let mut wait = LOOK;
        while event::poll(wait)? {
            wait = Duration::ZERO;
            let Event::Key(key) = event::read()? else { continue };
            if key.kind == KeyEventKind::Release {
                continue;
            }
            match key.code {
                KeyCode::Char('q') | KeyCode::Esc => return Ok(true),
                KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Ok(true),
                KeyCode::Char('p') => self.paused = !self.paused,
                KeyCode::Up => self.top = self.top.saturating_sub(1),
                KeyCode::Down => self.top += 1,
                KeyCode::PageUp => self.top = self.top.saturating_sub(10),
                KeyCode::PageDown => self.top += 10,
                KeyCode::Home => self.top = 0,
                _ => {}
            }
        }
        Ok(false)
    }

    fn draw(&mut self, frame: &mut Frame<'_>) {
        let View { rows, collectives, events, total, endpoints } = &self.view;
        let height = frame.area().height;
        let news = (events.len() as u16 + 1).min(height / 3);
        let operations =
            if collectives.is_empty() { 0 } else { (collectives.len() as u16 + 1).min(height / 3) };
        let parts = [Constraint::Length(1), Constraint::Min(2)]
            .into_iter()
            .chain([operations, news].map(Constraint::Length));
        let areas = Layout::vertical(parts).split(frame.area());
        let title = match rows.is_empty() {
            true if self.asked => self.nobody.to_owned(),
            true => "polyrail top".into(),
            false => {
                let (out, into) = (total.0 / 1e6, total.1 / 1e6);
                format!("polyrail top   {endpoints} endpoints   out {out:.1} MB/s   in {into:.1} MB/s")
            }
        };
        let keys = if self.paused { "PAUSED   q quit   p go on" } else { "q quit   p pause   arrows scroll" };
        let bold = Style::new().add_modifier(Modifier::BOLD);
        frame.render_widget(Line::styled(format!("{title}   {keys}"), bold), areas[0]);
        let room = usize::from(areas[1].height).saturating_sub(1);
        self.top = self.top.min(rows.len().saturating_sub(room));
        let shown = &rows[self.top..(self.top + room).min(rows.len())];
        // all rows count, so that columns stay where they are while one scrolls
        let width = |at: usize| {
            let cells = rows.iter().map(|row| row[at].chars().count());
            cells.chain([HEADING[at].len()]).max().unwrap_or(0) as u16
        };
        let widths = (0..HEADING.len()).map(|at| Constraint::Length(width(at)));
        let line = |cells: Vec<&str>| {
            Row::new(cells.into_iter().enumerate().map(|(at, cell)| {
                let aligned = if NUMBERS.contains(&at) { Alignment::Right } else { Alignment::Left };
                Cell::from(Line::raw(cell.to_owned()).alignment(aligned))
            }))
        };
        let rows = shown.iter().map(|row| line(row.iter().map(String::as_str).collect()));
        let heading = line(HEADING.to_vec()).style(Style::new().add_modifier(Modifier::REVERSED));
        frame.render_widget(Table::new(rows, widths).header(heading), areas[1]);
        let last = &events[events.len().saturating_sub(usize::from(news.saturating_sub(1)))..];
        let last: Vec<Line<'_>> = last.iter().map(|event| Line::raw(event.as_str())).collect();
        let frame_of_events = Block::new().borders(Borders::TOP).title("last events");
        frame.render_widget(Paragraph::new(last).block(frame_of_events), areas[3]);
        let heading = OPERATIONS.map(str::to_owned).to_vec();
        let text = table::aligned([heading].into_iter().chain(collectives.iter().cloned()));
        frame.render_widget(Paragraph::new(text), areas[2]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn picture(state: &mut State, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| state.draw(frame)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn it_scrolls_and_fits_any_terminal() {
        let row = |n: usize| {
            let mut row = vec![String::new(); HEADING.len()];
            row[0] = format!("<{n}>");
            row
        };
        let view = View {
            rows: (0..50).map(row).collect(),
            collectives: vec![vec!["MPI_Bcast".into(); 5]; 30],
            events: (0..16).map(|n| format!("event {n}")).collect(),
            total: (120e6, 0.0),
            endpoints: 2,
        };
        let mut state = State { view, ..State::default() };
        let shown = picture(&mut state, 200, 24);
        assert!(shown.contains("2 endpoints   out 120.0 MB/s") && shown.contains("OUT MB/s"), "{shown}");
        assert!(shown.contains("<0>") && !shown.contains("<20>"), "{shown}");
        assert!(shown.contains("event 15") && !shown.contains("event 1 "), "{shown}");
        assert!(shown.contains("ALGORITHM") && shown.contains("MPI_Bcast"), "{shown}");
        state.top = 1000;
        let shown = picture(&mut state, 200, 24);
        assert!(shown.contains("<49>") && !shown.contains("<0>"), "{shown}");
        for (width, height) in [(1, 1), (10, 3), (80, 2), (300, 100)] {
            picture(&mut state, width, height);
        }
        assert!(
            picture(&mut State { asked: true, nobody: "nobody", ..State::default() }, 80, 10)
                .contains("nobody")
        );
    }
}
