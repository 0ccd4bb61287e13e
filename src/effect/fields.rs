//! The fields of a document under construction, in their order.

use std::borrow::Cow;
use std::collections::HashMap;

use super::node::ImageNode;

/// Up to this number of fields, comparing the names is faster than hashing them.
const MOST_COMPARED: usize = 32;

#[derive(Debug, Clone, Default)]
pub(super) struct ImageFields<'s> {
    list: Vec<(Cow<'s, [u8]>, ImageNode<'s>)>,
    /// The positions in a long list: a client may update 100,000 fields.
    positions: Option<Box<HashMap<Cow<'s, [u8]>, usize>>>,
}

impl<'s> ImageFields<'s> {
    pub(super) fn iter(&self) -> impl Iterator<Item = &(Cow<'s, [u8]>, ImageNode<'s>)> {
        self.list.iter()
    }

    pub(super) fn get(&self, name: &[u8]) -> Option<&ImageNode<'s>> {
        self.list.get(self.position(name)?).map(|(_, node)| node)
    }

    pub(super) fn get_mut(&mut self, name: &[u8]) -> Option<&mut ImageNode<'s>> {
        let position = self.position(name)?;
        self.list.get_mut(position).map(|(_, node)| node)
    }

    /// Returns the field, and creates it last if it is missing.
    pub(super) fn get_or_create(
        &mut self,
        name: &'s [u8],
        new: impl FnOnce() -> ImageNode<'s>,
    ) -> Option<&mut ImageNode<'s>> {
        let position = self.position(name).unwrap_or_else(|| {
            self.list.push((Cow::Borrowed(name), new()));
            self.note_last();
            self.list.len() - 1
        });
        self.list.get_mut(position).map(|(_, node)| node)
    }

    pub(super) fn remove(&mut self, name: &[u8]) {
        self.list.retain(|(known, _)| known.as_ref() != name);
        self.positions = None;
        self.note_last();
    }

    fn position(&self, name: &[u8]) -> Option<usize> {
        match &self.positions {
            Some(positions) => positions.get(name).copied(),
            None => self.list.iter().position(|(known, _)| known.as_ref() == name),
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
        for (position, (name, _)) in self.list.iter().enumerate().skip(from) {
            positions.entry(name.clone()).or_insert(position);
        }
    }
}

impl<'s> FromIterator<(Cow<'s, [u8]>, ImageNode<'s>)> for ImageFields<'s> {
    fn from_iter<T: IntoIterator<Item = (Cow<'s, [u8]>, ImageNode<'s>)>>(fields: T) -> Self {
        let mut fields = Self { list: fields.into_iter().collect(), positions: None };
        fields.note_last();
        fields
    }
}
