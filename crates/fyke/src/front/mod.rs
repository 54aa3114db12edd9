//! The types at the root of the library: a filter that stays, a filter that is edited, their options and errors.

mod builder;
mod error;
mod filter;
mod live;
mod scratch;

pub use builder::FilterBuilder;
pub use error::{AnyError, Error};
pub use filter::Filter;
pub use live::{LiveFilter, LiveReader};
