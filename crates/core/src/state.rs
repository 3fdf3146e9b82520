//! State machines declared as data.
//!
//! A machine is a constant: its states, its events and its arcs. Code asks it for the next state; tests print it whole
//! (table and graph) and compare with a snapshot, so that a change of behaviour shows in review as a changed cell.

use core::fmt;

/// From any of these states, on this event, to that state.
pub type Arc<S, E> = (&'static [S], E, S);

/// A state machine as a constant. A pair of state and event without an arc is refused.
pub struct Machine<S: 'static, E: 'static> {
    /// What table and graph are headed with.
    pub name: &'static str,
    /// Every state, the initial one first.
    pub states: &'static [S],
    /// Every event.
    pub events: &'static [E],
    /// What is allowed.
    pub arcs: &'static [Arc<S, E>],
}

/// An event that the machine has no arc for in its present state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unexpected<S, E> {
    /// The state, unchanged.
    pub state: S,
    /// What came.
    pub event: E,
}

impl<S: fmt::Debug, E: fmt::Debug> fmt::Display for Unexpected<S, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not expected in state {:?}", self.event, self.state)
    }
}

impl<S: fmt::Debug, E: fmt::Debug> core::error::Error for Unexpected<S, E> {}

impl<S: Copy + Eq, E: Copy + Eq> Machine<S, E> {
    /// Where `event` leads from `state`; None when it is not expected there.
    pub fn next(&self, state: S, event: E) -> Option<S> {
        self.arcs.iter().find(|(from, on, _)| *on == event && from.contains(&state)).map(|arc| arc.2)
    }

    /// Moves `state` along the arc of `event`, or leaves it alone and says what was wrong.
    pub fn step(&self, state: &mut S, event: E) -> Result<S, Unexpected<S, E>> {
        *state = self.next(*state, event).ok_or(Unexpected { state: *state, event })?;
        Ok(*state)
    }
}

impl<S: Copy + Eq + fmt::Debug, E: Copy + Eq + fmt::Debug> Machine<S, E> {
    /// The whole machine as a Markdown table, a row for each state and a column for each event.
    pub const fn table(&self) -> Table<'_, S, E> {
        Table(self)
    }

    /// The whole machine as a graph in dot.
    pub const fn dot(&self) -> Dot<'_, S, E> {
        Dot(self)
    }
}

/// Prints a machine as a Markdown table.
pub struct Table<'a, S: 'static, E: 'static>(&'a Machine<S, E>);

impl<S: Copy + Eq + fmt::Debug, E: Copy + Eq + fmt::Debug> fmt::Display for Table<'_, S, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let machine = self.0;
        write!(f, "| {} |", machine.name)?;
        machine.events.iter().try_for_each(|event| write!(f, " {event:?} |"))?;
        write!(f, "\n|---|")?;
        machine.events.iter().try_for_each(|_| f.write_str("---|"))?;
        for &state in machine.states {
            write!(f, "\n| **{state:?}** |")?;
            for &event in machine.events {
                match machine.next(state, event) {
                    Some(next) => write!(f, " {next:?} |")?,
                    None => f.write_str(" |")?,
                }
            }
        }
        f.write_str("\n")
    }
}

/// Prints a machine as a dot graph.
pub struct Dot<'a, S: 'static, E: 'static>(&'a Machine<S, E>);

impl<S: Copy + Eq + fmt::Debug, E: Copy + Eq + fmt::Debug> fmt::Display for Dot<'_, S, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let machine = self.0;
        writeln!(f, "digraph {} {{", machine.name)?;
        for (at, &state) in machine.states.iter().enumerate() {
            let ends = machine.events.iter().all(|&event| machine.next(state, event).is_none());
            let shape = if ends { "doublecircle" } else { "ellipse" };
            let style = if at == 0 { ", style=bold" } else { "" };
            writeln!(f, "  {state:?} [shape={shape}{style}];")?;
        }
        for &state in machine.states {
            for &event in machine.events {
                if let Some(next) = machine.next(state, event) {
                    writeln!(f, "  {state:?} -> {next:?} [label=\"{event:?}\"];")?;
                }
            }
        }
        writeln!(f, "}}")
    }
}
