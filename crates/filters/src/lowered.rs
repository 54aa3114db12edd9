//! The texts of a group of changes, compiled and lowered for each link type: the slow part of an edit, done before any
//! lock is taken.

use crate::error::{FilterError, GroupError};
use crate::texts::Change;
use fyke_frame::LinkType;
use fyke_pass::LoweredFilter;
use std::collections::BTreeMap;

/// A text for one link type: lowered, or the reason why it does not fit.
pub(crate) type Fit = Result<LoweredFilter, fyke_filter::Error>;

/// The texts of a group, by the index of their change; each for link types in a fixed order.
#[derive(Debug, Default)]
pub(crate) struct LoweredTexts(BTreeMap<usize, Vec<Fit>>);

impl LoweredTexts {
    /// Lowers the texts for further link types: those in `links` after the ones for which they are lowered already.
    pub fn lower(
        &mut self,
        changes: &[Change<'_>],
        links: &[LinkType],
        lower: impl Fn(&str, LinkType) -> Result<Fit, FilterError>,
    ) -> Result<(), GroupError> {
        for (place, change) in changes.iter().enumerate() {
            let Some(text) = change.text() else { continue };
            let fits = self.0.entry(place).or_default();
            for &link in links.iter().skip(fits.len()) {
                fits.push(lower(text, link).map_err(GroupError::at(place))?);
            }
        }
        Ok(())
    }

    /// The texts, by the index of their change.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &[Fit])> {
        self.0.iter().map(|(&place, fits)| (place, &fits[..]))
    }

    /// Keeps only the texts that fit, to add them to pass sets.
    pub fn fitting(self) -> FittingTexts {
        let fitting = |fits: Vec<Fit>| fits.into_iter().map(Result::ok).collect();
        FittingTexts(self.0.into_iter().map(|(place, fits)| (place, fitting(fits))).collect())
    }
}

/// The texts of a group that fit.
#[derive(Debug)]
pub(crate) struct FittingTexts(BTreeMap<usize, Vec<Option<LoweredFilter>>>);

impl FittingTexts {
    /// Takes a text for one link type; `None` if the text does not fit it, or was taken before.
    pub fn take(&mut self, place: usize, link: usize) -> Option<LoweredFilter> {
        self.0.get_mut(&place)?.get_mut(link)?.take()
    }
}
