//! Pieces as keys of hash tables: most have at most 15 bytes and are held as one number.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::ops::Range;

/// A hash table that is quick for small keys; nothing may depend on its order, which differs each time.
pub(crate) type FastMap<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

/// The longest piece that is one number: a byte of the 16 is its length.
const SHORT_BYTES: usize = 15;

/// A piece of a text, in the form that is quick to look up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Piece<'t> {
    Short(Short),
    Long(&'t [u8]),
}

/// From the high end: the bytes, zeros, the length. The order of the numbers is that of the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Short(u128);

impl<'t> Piece<'t> {
    /// The piece in a range of a text.
    pub(crate) fn of(text: &'t [u8], range: Range<usize>) -> Self {
        let Range { start, end } = range;
        let len = end - start;
        if len > SHORT_BYTES {
            return Self::Long(&text[start..end]);
        }
        let mut bytes = [0; 16];
        match text.get(start..start + 16) {
            // one load of known size, and what follows the piece masked away
            Some(ahead) => bytes.copy_from_slice(ahead),
            None => bytes[..len].copy_from_slice(&text[start..end]),
        }
        let masked = u128::from_be_bytes(bytes) & !(u128::MAX >> (8 * len));
        Self::Short(Short(masked | len as u128))
    }

    /// The bytes that the piece was made of.
    pub(crate) fn bytes(self) -> Cow<'t, [u8]> {
        match self {
            Self::Short(short) => Cow::Owned(short.bytes()),
            Self::Long(bytes) => Cow::Borrowed(bytes),
        }
    }

    pub(crate) fn len(self) -> usize {
        match self {
            Self::Short(short) => short.len(),
            Self::Long(bytes) => bytes.len(),
        }
    }
}

impl Short {
    fn len(self) -> usize {
        self.0 as usize & 0xFF
    }

    fn bytes(self) -> Vec<u8> {
        self.0.to_be_bytes()[..self.len()].to_vec()
    }
}

impl Ord for Piece<'_> {
    /// As the bytes.
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Short(one), Self::Short(other)) => one.0.cmp(&other.0),
            _ => self.bytes().cmp(&other.bytes()),
        }
    }
}

impl PartialOrd for Piece<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A value for each of many pieces.
#[derive(Debug, Default)]
pub(crate) struct PieceMap<V> {
    short: FastMap<Short, V>,
    long: FastMap<Box<[u8]>, V>,
}

impl<V> PieceMap<V> {
    pub(crate) fn len(&self) -> usize {
        self.short.len() + self.long.len()
    }

    pub(crate) fn get(&self, piece: Piece<'_>) -> Option<&V> {
        match piece {
            Piece::Short(short) => self.short.get(&short),
            Piece::Long(bytes) => self.long.get(bytes),
        }
    }

    pub(crate) fn get_mut(&mut self, piece: Piece<'_>) -> Option<&mut V> {
        match piece {
            Piece::Short(short) => self.short.get_mut(&short),
            Piece::Long(bytes) => self.long.get_mut(bytes),
        }
    }

    pub(crate) fn insert(&mut self, piece: Piece<'_>, value: V) {
        match piece {
            Piece::Short(short) => self.short.insert(short, value),
            Piece::Long(bytes) => self.long.insert(bytes.into(), value),
        };
    }

    /// All pieces with their values, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Piece<'_>, &V)> {
        let short = self.short.iter().map(|(&short, value)| (Piece::Short(short), value));
        short.chain(self.long.iter().map(|(bytes, value)| (Piece::Long(bytes), value)))
    }
}

impl PieceMap<u64> {
    /// Adds to the count of a piece.
    pub(crate) fn add(&mut self, piece: Piece<'_>, count: u64) {
        match self.get_mut(piece) {
            Some(total) => *total += count,
            None => self.insert(piece, count),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// Few different bytes, NUL among them, and lengths around the longest short piece.
    fn pieces() -> impl Strategy<Value = Vec<Vec<u8>>> {
        let byte = prop_oneof![Just(0u8), Just(1), Just(b'a'), Just(0xFF)];
        prop::collection::vec(prop::collection::vec(byte, 1..19), 1..60)
    }

    proptest! {
        #[test]
        fn a_piece_has_the_bytes_and_the_order_of_its_bytes_wherever_it_stands(pieces in pieces()) {
            let text = pieces.concat();
            let mut end = 0;
            let made: Vec<Piece<'_>> = pieces
                .iter()
                .map(|piece| {
                    end += piece.len();
                    Piece::of(&text, end - piece.len()..end)
                })
                .collect();
            for (one, bytes) in made.iter().zip(&pieces) {
                prop_assert!(*one.bytes() == **bytes);
                prop_assert_eq!(one.len(), bytes.len());
                for (other, other_bytes) in made.iter().zip(&pieces) {
                    prop_assert_eq!(one.cmp(other), bytes.cmp(other_bytes));
                    prop_assert_eq!(one == other, bytes == other_bytes);
                }
            }
        }

        #[test]
        fn a_map_of_pieces_is_a_map(pieces in pieces()) {
            let (mut map, mut simple) = (PieceMap::default(), BTreeMap::new());
            for bytes in &pieces {
                let piece = Piece::of(bytes, 0..bytes.len());
                prop_assert_eq!(map.get(piece), simple.get(bytes));
                map.add(piece, 1);
                *simple.entry(bytes.clone()).or_insert(0) += 1;
                prop_assert_eq!(map.get_mut(piece).copied(), simple.get(bytes).copied());
            }
            prop_assert_eq!(map.len(), simple.len());
            let all: BTreeMap<Vec<u8>, u64> =
                map.iter().map(|(piece, &count)| (piece.bytes().into_owned(), count)).collect();
            prop_assert_eq!(all, simple);
        }
    }
}
