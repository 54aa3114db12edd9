//! Hashed rows, sets, prefixes and the deletable Bloom pre-filter: one writer, readers that never wait.
//!
//! ```
//! use fyke::table::{RowTable, Seed};
//!
//! let mut table = RowTable::new(2, Seed::random()); // keys of two words
//! let mut reader = table.reader(); // for another thread
//! table.insert(&[0x0a00_0001, 80], 7)?;
//! assert_eq!(table.get(&[0x0a00_0001, 80]), Some(7));
//! assert_eq!(reader.find(&[0x0a00_0001, 80]), Some(7));
//! # Ok::<(), fyke::table::TableError>(())
//! ```
//!
//! | type | answers |
//! |---|---|
//! | [`RowTable`] | which row has this key of 1 to 6 words |
//! | [`ValueSet`], [`RegisterSet`] | whether a word is one of many, of up to 48 |
//! | [`PrefixTable`] | the longest prefix of an address |
//! | [`Prefilter`] | certainly no rule, or maybe one, at a cost that does not depend on their number |

#[doc(inline)]
pub use fyke_table::{
    BlockedBloom, Column, Level, MAX_KEY_WORDS, PrefixError, PrefixReader, PrefixTable,
    RegisterSet, RowTable, Seed, TableError, TableReader, TableStats, ValueSet, ValueSetReader,
};

#[doc(inline)]
pub use fyke_table::prefilter::{
    Answer, Command, Decided, Prefilter, PrefilterCounts, PrefilterError, PrefilterOptions,
    PrefilterReader, Rule, RuleTextError, SpaceStats,
};
