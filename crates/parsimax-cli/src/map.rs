//! `parsimax map`: rows of scores in, rows of probabilities out.

use std::io::{self, Write};

use parsimax::registry::MAPPINGS;
use parsimax::{Rows, View, ViewMut, explain};

use crate::args::{MapConfig, flags};
use crate::output::{self, Format};
use crate::{Result, input};

/// Reads everything, maps everything, then writes: a failure leaves no partial output.
pub(crate) fn run(config: &MapConfig) -> Result<()> {
    let table = input::read(&config.source)?;
    let (z, columns) = (table.scores(), table.columns());
    match config.format {
        Format::Text => {
            let shape = [z.len() / columns, columns];
            let mut p = vec![0.0; z.len()];
            Rows::new(&config.mapping)
                .forward(View::new(z, &shape)?, ViewMut::new(&mut p, &shape)?)
                .map_err(|error| table.locate(error))?;
            config.sink.write(|out| p.chunks_exact(columns).try_for_each(|p| output::text_row(out, p)))
        }
        Format::Json => {
            let rows = explain(&config.mapping, z, columns).map_err(|error| table.locate(error))?;
            config.sink.write(|out| rows.iter().try_for_each(|row| output::json_row(out, row)))
        }
    }
}

/// Prints the table of mappings, one to a line.
pub(crate) fn list(out: &mut dyn Write) -> io::Result<()> {
    let head = ["NAME", "PARAMETERS", "COST", "REGULARISER Ω", "ZEROS", "REFERENCE"].map(String::from);
    let lines = MAPPINGS.iter().map(|entry| {
        [
            entry.name.into(),
            flags(entry),
            entry.cost.into(),
            entry.omega.into(),
            entry.sparsity.into(),
            entry.reference.into(),
        ]
    });
    output::columns(out, &std::iter::once(head).chain(lines).collect::<Vec<[String; 6]>>())
}
