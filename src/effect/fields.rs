//! The fields of a document under construction, in their order.

use std::borrow::Cow;
use std::collections::HashMap;

/// Up to this number of fields, comparing the names is faster than hashing them.
const MOST_COMPARED: usize = 32;

/// Fields with nodes of this type.
#[derive(Debug, Clone)]
pub(super) struct NamedFields<'s, N> {
    /// `None` is a removed field, so that the others keep their positions.
    list: Vec<Option<(Cow<'s, [u8]>, N)>>,
    /// Of a long list: a client may update 100,000 fields. Boxed, because most documents are short.
    positions: Option<Box<Positions<'s>>>,
}

#[derive(Debug, Clone, Default)]
struct Positions<'s>(HashMap<Cow<'s, [u8]>, usize>);

impl<N> Default for NamedFields<'_, N> {
    fn default() -> Self {
        Self { list: Vec::new(), positions: None }
    }
}

impl<'s, N> NamedFields<'s, N> {
    pub(super) fn iter(&self) -> impl Iterator<Item = &(Cow<'s, [u8]>, N)> {
        self.list.iter().flatten()
    }

    pub(super) fn get(&self, name: &[u8]) -> Option<&N> {
        self.list.get(self.position(name)?)?.as_ref().map(|(_, node)| node)
    }

    pub(super) fn get_mut(&mut self, name: &[u8]) -> Option<&mut N> {
        let position = self.position(name)?;
        self.list.get_mut(position)?.as_mut().map(|(_, node)| node)
    }

    /// Returns the field, and creates it last if it is missing.
    pub(super) fn get_or_create(&mut self, name: &'s [u8], new: impl FnOnce() -> N) -> Option<&mut N> {
        let position = self.position(name).unwrap_or_else(|| {
            self.list.push(Some((Cow::Borrowed(name), new())));
            self.note_last();
            self.list.len() - 1
        });
        self.list.get_mut(position)?.as_mut().map(|(_, node)| node)
    }

    pub(super) fn remove(&mut self, name: &[u8]) {
        let position = self.position(name);
        if let Some(field) = position.and_then(|position| self.list.get_mut(position)) {
            *field = None;
        }
        if let Some(positions) = &mut self.positions {
            positions.0.remove(name);
        }
    }

    fn position(&self, name: &[u8]) -> Option<usize> {
        match &self.positions {
            Some(positions) => positions.0.get(name).copied(),
            None => self.list.iter().position(|field| field.as_ref().is_some_and(|(known, _)| known.as_ref() == name)),
        }
    }

    /// Notes the position of the last field, or of all fields once there are many.
    fn note_last(&mut self) {
        let last = self.list.len().saturating_sub(1);
        if last < MOST_COMPARED {
            return;
        }
        let from = if self.positions.is_some() { last } else { 0 };
        let positions = self.positions.get_or_insert_default();
        for (position, field) in self.list.iter().enumerate().skip(from) {
            let name = field.as_ref().map(|(name, _)| name.clone());
            name.into_iter().for_each(|name| _ = positions.0.entry(name).or_insert(position));
        }
    }
}

impl<'s, N> FromIterator<(Cow<'s, [u8]>, N)> for NamedFields<'s, N> {
    fn from_iter<T: IntoIterator<Item = (Cow<'s, [u8]>, N)>>(fields: T) -> Self {
        let mut fields = Self { list: fields.into_iter().map(Some).collect(), positions: None };
        fields.note_last();
        fields
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same as a list that is searched, whatever is created and removed.
    #[test]
    fn an_index_finds_what_a_search_finds() {
        let names: Vec<Vec<u8>> = (0..100).map(|number| format!("f{number}").into_bytes()).collect();
        let mut fields = NamedFields::default();
        let mut known: Vec<(&[u8], usize)> = Vec::new();
        for step in 0..2000_usize {
            let name = names[step * 37 % 100].as_slice();
            if step % 3 == 0 {
                fields.remove(name);
                known.retain(|(other, _)| *other != name);
            } else {
                let value = *fields.get_or_create(name, || step).unwrap();
                if !known.iter().any(|(other, _)| *other == name) {
                    known.push((name, step));
                }
                assert!(known.contains(&(name, value)));
            }
            let listed: Vec<(&[u8], usize)> = fields.iter().map(|(name, value)| (name.as_ref(), *value)).collect();
            assert_eq!(listed, known);
            assert!(known.iter().all(|(name, value)| fields.get(name) == Some(value)));
        }
    }
}
