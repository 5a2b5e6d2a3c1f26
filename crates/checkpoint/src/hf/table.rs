//! Which tensor of a file holds which part of the flat parameter buffer: one table, read in both directions.

use softdict_model::{ModelConfig, Parameter, ParameterTable};
use std::collections::BTreeMap;
use std::ops::Range;

/// How the values of a tensor lie in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    /// As in the model: (outputs, inputs).
    Same,
    /// (inputs, outputs).
    Transposed,
    /// Rows by head, then query, key and value of it; in the model all queries come first, then all keys.
    HeadByHead {
        /// Heads H.
        heads: usize,
        /// Components D of each.
        head_size: usize,
    },
}

/// One tensor of a file, and the part of the parameters that it holds.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    /// Its name in the file.
    pub(crate) name: String,
    place: Range<usize>,
    rows: usize,
    width: usize,
    vector: bool,
    layout: Layout,
}

impl Entry {
    /// Its shape in the file.
    pub(crate) fn shape(&self) -> Vec<usize> {
        match (self.vector, self.layout) {
            (true, _) => vec![self.rows],
            (false, Layout::Transposed) => vec![self.width, self.rows],
            (false, _) => vec![self.rows, self.width],
        }
    }

    /// Where the file has the row that the model has as this one: its first value, and the step to the next.
    fn row(&self, row: usize) -> (usize, usize) {
        match self.layout {
            Layout::Same => (row * self.width, 1),
            Layout::Transposed => (row, self.rows),
            Layout::HeadByHead { heads, head_size } => {
                let (part, head, component) =
                    (row / (heads * head_size), row / head_size % heads, row % head_size);
                (((head * 3 + part) * head_size + component) * self.width, 1)
            }
        }
    }

    /// The tensor as the file has it, from all parameters.
    pub(crate) fn gather(&self, parameters: &[f32]) -> Vec<f32> {
        let own = &parameters[self.place.clone()];
        let mut file = vec![0.0; own.len()];
        for (row, own) in own.chunks_exact(self.width).enumerate() {
            let (first, step) = self.row(row);
            if step == 1 {
                file[first..first + self.width].copy_from_slice(own);
            } else {
                for (place, &value) in file[first..].iter_mut().step_by(step).zip(own) {
                    *place = value;
                }
            }
        }
        file
    }

    /// Inverts [`Entry::gather`]; returns its part of the parameters.
    pub(crate) fn scatter<'p, T: Copy>(
        &self,
        file: &[T],
        widen: impl Fn(T) -> f32,
        parameters: &'p mut [f32],
    ) -> &'p [f32] {
        let own = &mut parameters[self.place.clone()];
        for (row, own) in own.chunks_exact_mut(self.width).enumerate() {
            let (first, step) = self.row(row);
            if step == 1 {
                for (value, &place) in own.iter_mut().zip(&file[first..]) {
                    *value = widen(place);
                }
            } else {
                for (value, &place) in own.iter_mut().zip(file[first..].iter().step_by(step)) {
                    *value = widen(place);
                }
            }
        }
        own
    }

    /// Its part of the flat buffer.
    #[cfg(test)]
    pub(super) fn place(&self) -> Range<usize> {
        self.place.clone()
    }
}

/// A table being written down.
pub(super) struct Names {
    parameters: BTreeMap<String, Parameter>,
    entries: Vec<Entry>,
}

impl Names {
    pub(super) fn of(config: &ModelConfig) -> Self {
        let table = ParameterTable::new(config);
        let parameters = table.iter().map(|parameter| (parameter.name.clone(), parameter.clone())).collect();
        Self { parameters, entries: Vec::new() }
    }

    /// `name` holds the parameter, if the configuration has it: a tied model has no head.
    pub(super) fn add(&mut self, name: &str, parameter: &str, layout: Layout) {
        if let Some(found) = self.parameters.get(parameter) {
            let rows = found.shape.first().copied().unwrap_or(1);
            self.push(name, parameter, 0..rows, layout);
        }
    }

    /// `name` holds these rows of the parameter.
    pub(super) fn add_rows(&mut self, name: &str, parameter: &str, rows: Range<usize>) {
        self.push(name, parameter, rows, Layout::Same);
    }

    /// Weight and bias.
    pub(super) fn add_both(&mut self, name: &str, parameter: &str, layout: Layout) {
        for part in ["weight", "bias"] {
            self.add(&format!("{name}.{part}"), &format!("{parameter}.{part}"), layout);
        }
    }

    fn push(&mut self, name: &str, parameter: &str, rows: Range<usize>, layout: Layout) {
        let Some(found) = self.parameters.get(parameter) else { return };
        let width: usize = found.shape.iter().skip(1).product();
        let place = found.offset + rows.start * width..found.offset + rows.end * width;
        let (rows, vector) = (rows.len(), found.shape.len() == 1);
        self.entries.push(Entry { name: name.to_owned(), place, rows, width, vector, layout });
    }

    pub(super) fn finish(self) -> Vec<Entry> {
        self.entries
    }
}

/// What follows `prefix` and a layer number in a name: `attn.bias` of `h.3.attn.bias` for `h.`.
pub(super) fn within_layer<'a>(name: &'a str, prefix: &str) -> Option<&'a str> {
    let (number, rest) = name.strip_prefix(prefix)?.split_once('.')?;
    number.bytes().all(|digit| digit.is_ascii_digit()).then_some(rest)
}
