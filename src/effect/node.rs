//! A document under construction: a tree of the values that are known, and of those that are not.

use std::borrow::Cow;

use super::fields::NamedFields;
use crate::document::{Kind, OwnedValue, Value};

/// The value of the added document at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageValue<'i> {
    /// The field is missing, and `$set` could create it.
    Missing,
    Value(Value<'i>),
    /// An unknown value, of this kind if it is known.
    Some(Option<Kind>),
    /// The field may exist or not.
    Unknown,
    /// A parent of the field is not a document; it has this kind.
    Blocked(Kind),
}

impl ImageValue<'_> {
    /// Returns whether the field may be missing.
    pub fn may_be_missing(self) -> bool {
        matches!(self, Self::Missing | Self::Blocked(_) | Self::Unknown)
    }

    /// Returns what is known of the value if this or the other one is right.
    pub(super) fn or(self, other: Self) -> Self {
        let kind = |held| match held {
            Self::Value(value) => Some(Some(value.kind)),
            Self::Some(kind) => Some(kind),
            Self::Missing | Self::Unknown | Self::Blocked(_) => None,
        };
        match (kind(self), kind(other)) {
            _ if self == other => self,
            (Some(own), Some(other)) => Self::Some(own.filter(|_| own == other)),
            _ => Self::Unknown,
        }
    }
}

#[derive(Debug, Clone)]
pub(super) enum ImageNode<'s> {
    /// The value that the client sent.
    Value(Value<'s>),
    Owned(OwnedValue),
    Document(ImageFields<'s>),
    /// Created for an operator, which has not written its value yet.
    New,
    /// A value of this kind, if that is known.
    Some(Option<Kind>),
    /// A value, or none.
    Unknown,
}

pub(super) type ImageFields<'s> = NamedFields<'s, ImageNode<'s>>;

/// The state of a path in a document under construction.
pub(super) enum PathState {
    /// All existing parents are documents.
    Free,
    /// There is an array at this depth.
    Array(usize),
    /// There is an unknown value at this depth.
    Unknown(usize),
    /// There is a scalar.
    Blocked,
}

impl<'s> ImageNode<'s> {
    /// Returns the fields of a document for changes.
    pub(super) fn open(&mut self) -> Option<&mut ImageFields<'s>> {
        if let Self::Value(value) = self
            && let Some(document) = value.as_document()
        {
            let fields = document.elements().map(|field| (Cow::Borrowed(field.key), Self::Value(field.value)));
            *self = Self::Document(fields.collect());
        }
        match self {
            Self::Document(fields) => Some(fields),
            _ => None,
        }
    }

    pub(super) fn kind(&self) -> Option<Kind> {
        match self {
            Self::Value(value) => Some(value.kind),
            Self::Owned(value) => Some(value.as_value().kind),
            Self::Document(_) => Some(Kind::Document),
            Self::Some(kind) => *kind,
            Self::New | Self::Unknown => None,
        }
    }

    /// Returns what is known of the value.
    pub(super) fn held(&self) -> ImageValue<'_> {
        match self {
            Self::Value(value) => ImageValue::Value(*value),
            Self::Owned(value) => ImageValue::Value(value.as_value()),
            Self::Document(_) => ImageValue::Some(Some(Kind::Document)),
            Self::Some(kind) => ImageValue::Some(*kind),
            Self::New => ImageValue::Some(None),
            Self::Unknown => ImageValue::Unknown,
        }
    }

    pub(super) fn path_state(&self, parts: &[&[u8]]) -> PathState {
        let mut node = self;
        for (depth, part) in parts.iter().enumerate() {
            match node {
                ImageNode::Document(fields) => match fields.get(part) {
                    None => return PathState::Free,
                    Some(child) => node = child,
                },
                ImageNode::New | ImageNode::Unknown | ImageNode::Some(None) => return PathState::Unknown(depth),
                other => {
                    return match other.kind() {
                        Some(Kind::Document) => other.path_state_below(parts.get(depth..).unwrap_or_default(), depth),
                        Some(Kind::Array) => PathState::Array(depth),
                        _ => PathState::Blocked,
                    };
                }
            }
        }
        PathState::Free
    }

    /// Returns the state of a path inside a value that the client sent.
    fn path_state_below(&self, parts: &[&[u8]], depth: usize) -> PathState {
        let (ImageNode::Value(value), false) = (self, parts.is_empty()) else { return PathState::Unknown(depth) };
        let mut found = *value;
        for (more, part) in parts.iter().enumerate() {
            match (found.as_document(), found.kind) {
                (Some(document), _) => match document.get(part) {
                    None => return PathState::Free,
                    Some(value) => found = value,
                },
                (None, Kind::Array) => return PathState::Array(depth + more),
                (None, _) => return PathState::Blocked,
            }
        }
        PathState::Free
    }

    /// Returns the node at a free path. If it is missing and `creates` is set, it is created as `New`.
    pub(super) fn reach(&mut self, parts: &[&'s [u8]], creates: bool) -> Option<&mut ImageNode<'s>> {
        let mut node = self;
        for (depth, part) in parts.iter().enumerate() {
            let is_last = depth + 1 == parts.len();
            let new = || if is_last { ImageNode::New } else { ImageNode::Document(ImageFields::default()) };
            let fields = node.open()?;
            node = if creates { fields.get_or_create(part, new)? } else { fields.get_mut(part)? };
        }
        Some(node)
    }

    /// Returns the node at a path that exists.
    pub(super) fn reach_known(&mut self, parts: &[&[u8]]) -> Option<&mut ImageNode<'s>> {
        let mut node = self;
        for part in parts {
            node = node.open()?.get_mut(part)?;
        }
        Some(node)
    }
}
