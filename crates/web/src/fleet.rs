//! The fleet of a page: filters of a group of machines, and where they are in force.
//!
//! A [`Fleet`] reads the group, in a thread that runs while a page shows it. A page only reads:
//! edits need the key of an author, which this server does not have.

use serde::Serialize;
use std::collections::BTreeMap;

/// Most sensors of a view.
pub const MAX_SENSORS: usize = 200;
/// Most filters of a view.
pub const MAX_FILTERS: usize = 100;

/// Reader of a group.
pub trait Fleet: Send + Sync + std::fmt::Debug {
    /// Reads the group about once a second and gives each view to `show`, until that returns false.
    fn follow(&self, show: &mut dyn FnMut(View) -> bool);
}

/// A group at some time. Texts come from other machines.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct View {
    /// Name of the group.
    pub group: String,
    /// Present while the broker does not answer: the rest is old.
    pub away: Option<Away>,
    /// Sequence of the last edit, the epoch of the group; 0 without one.
    pub sequence: u64,
    /// The latest filters, oldest first; at most [`MAX_FILTERS`].
    pub filters: Vec<Filter>,
    /// Number of older ones.
    pub more_filters: usize,
    /// Number of sensors that run and that the last edit is for.
    pub addressed: usize,
    /// Number of those at which it is in force.
    pub in_force: usize,
    /// Number of sensors that have not been heard of.
    pub silent: usize,
    /// Time from which the last edit is in force everywhere, milliseconds since 1970; `None` if it is not.
    pub everywhere_since_unix_ms: Option<u64>,
    /// The sensors, those without the last edit first; at most [`MAX_SENSORS`].
    pub sensors: Vec<Sensor>,
    /// Number of the others.
    pub more_sensors: usize,
}

impl View {
    /// A view with these sensors: counted, those that need a look first, and bounded.
    pub fn of_sensors(mut sensors: Vec<Sensor>) -> View {
        let number = |fits: fn(&Standing) -> bool| {
            sensors.iter().filter(|sensor| fits(&sensor.standing)).count()
        };
        let silent = number(|it| matches!(it, Standing::Silent { .. }));
        let in_force = number(|it| matches!(it, Standing::InForce { .. }));
        let others = number(|it| matches!(it, Standing::NotAddressed));
        let addressed = sensors.len() - silent - others;
        let since = sensors.iter().filter_map(|sensor| match sensor.standing {
            Standing::InForce { since_unix_ms, .. } => Some(since_unix_ms),
            _ => None,
        });
        let everywhere_since_unix_ms = since.max().filter(|_| in_force == addressed);
        // Stable: within each rank, the order is as given.
        sensors.sort_by_key(|sensor| sensor.standing.rank());
        let more_sensors = sensors.len().saturating_sub(MAX_SENSORS);
        sensors.truncate(MAX_SENSORS);
        View {
            addressed,
            in_force,
            silent,
            everywhere_since_unix_ms,
            sensors,
            more_sensors,
            ..View::default()
        }
    }
}

/// A broker that does not answer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Away {
    /// Time of its last answer, milliseconds since 1970.
    pub since_unix_ms: u64,
    /// The reason.
    pub reason: String,
}

/// A filter of the group.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Filter {
    /// Its id.
    pub id: String,
    /// Its author.
    pub author: String,
    /// Labels of the sensors that it is for.
    pub only: BTreeMap<String, String>,
    /// Its text.
    pub text: String,
}

/// A sensor of the group.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Sensor {
    /// Its name.
    pub name: String,
    /// Its machine.
    pub host: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Source of the fyke beside it; `None` while there is none.
    pub source: Option<String>,
    /// Local epoch of that fyke.
    pub epoch: Option<u64>,
    /// The last edit that it has answered.
    pub sequence: u64,
    /// Number of edits that it has refused.
    pub refused: u64,
    /// Reason why it does not follow the group at the moment.
    pub trouble: Option<String>,
    /// The last edit of the group at this sensor.
    pub standing: Standing,
}

/// The last edit of a group at a sensor.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(tag = "standing", rename_all = "snake_case")]
pub enum Standing {
    /// It has refused the edit.
    Refused {
        /// The reason.
        message: String,
    },
    /// It has not been heard of.
    Silent {
        /// Time of its last sign of life, milliseconds since 1970.
        since_unix_ms: u64,
    },
    /// It has not answered the last edits.
    Lags {
        /// Their number.
        edits: u64,
    },
    /// There is no answer of this run of it.
    #[default]
    Unknown,
    /// The edit is in force.
    InForce {
        /// Time of its answer, milliseconds since 1970.
        since_unix_ms: u64,
        /// The local epoch that it began, if it was not put in force together with a later edit.
        epoch: Option<u64>,
    },
    /// The edit is for other sensors.
    NotAddressed,
}

impl Standing {
    /// Sensors with the lowest rank come first.
    fn rank(&self) -> u8 {
        match self {
            Standing::Refused { .. } => 0,
            Standing::Silent { .. } => 1,
            Standing::Lags { .. } => 2,
            Standing::Unknown => 3,
            Standing::InForce { .. } => 4,
            Standing::NotAddressed => 5,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sensor(name: &str, standing: Standing) -> Sensor {
        Sensor { name: name.to_owned(), standing, ..Sensor::default() }
    }

    fn in_force(since_unix_ms: u64) -> Standing {
        Standing::InForce { since_unix_ms, epoch: None }
    }

    #[test]
    fn an_edit_is_in_force_everywhere_if_all_sensors_that_run_and_that_it_is_for_have_it() {
        let mut sensors = vec![
            sensor("a", in_force(10)),
            sensor("b", in_force(30)),
            sensor("c", Standing::NotAddressed),
            sensor("d", Standing::Silent { since_unix_ms: 50 }),
        ];
        let view = View::of_sensors(sensors.clone());
        assert_eq!((view.in_force, view.addressed, view.silent), (2, 2, 1));
        assert_eq!(view.everywhere_since_unix_ms, Some(30));
        for standing in [
            Standing::Lags { edits: 2 },
            Standing::Unknown,
            Standing::Refused { message: "no".to_owned() },
        ] {
            sensors[1].standing = standing;
            let view = View::of_sensors(sensors.clone());
            assert_eq!((view.in_force, view.addressed), (1, 2));
            assert_eq!(view.everywhere_since_unix_ms, None);
        }
        let names: Vec<_> =
            View::of_sensors(sensors).sensors.into_iter().map(|sensor| sensor.name).collect();
        assert_eq!(names, ["b", "d", "a", "c"]);
        assert_eq!(View::of_sensors(Vec::new()), View::default());
    }

    #[test]
    fn of_many_sensors_those_that_need_a_look_are_shown() {
        let mut sensors = vec![sensor("good", in_force(1)); 1_000];
        sensors.push(sensor("lags", Standing::Lags { edits: 1 }));
        let view = View::of_sensors(sensors);
        assert_eq!((view.sensors.len(), view.more_sensors), (MAX_SENSORS, 801));
        assert_eq!((view.in_force, view.addressed), (1_000, 1_001));
        assert_eq!(view.sensors[0].name, "lags");
    }
}
