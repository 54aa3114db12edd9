//! The group of machines on the page of `fyke web`: read by an [`Operator`], as `fyke fleet` reads it.

use super::{named, options_of, trusted, wait_for};
use crate::cli::GroupArgs;
use crate::commands::Failure;
use fyke_fleet::Name;
use fyke_fleet::broker::{self, Broker, BrokerError};
use fyke_fleet::keys::Trusted;
use fyke_fleet::message::Outcome;
use fyke_fleet::operator::{self, Operator};
use fyke_fleet::state::{self, State};
use fyke_web::fleet::{Away, Filter, Fleet, MAX_FILTERS, Sensor, Standing, View};
use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Time between two readings.
const INTERVAL: Duration = Duration::from_secs(1);
/// A sensor writes its entry every two seconds; it is silent after this time without a new one.
const SILENT: Duration = Duration::from_secs(7);
/// Most sensors that are remembered.
const MAX_KNOWN: usize = 10_000;

/// A group at its broker.
#[derive(Debug)]
pub struct Group {
    name: Name,
    trusted: Trusted,
    to: broker::Options,
}

impl Group {
    /// Takes the options of a group, and connects to nothing.
    pub fn new(args: &GroupArgs) -> Result<Group, Failure> {
        let (name, trusted) = (named("--group", &args.group)?, trusted(args)?);
        Ok(Group { name, trusted, to: options_of(args)? })
    }

    /// The filters and the sensors at present; connects if there is no operator yet.
    async fn read<'a>(
        &self,
        operator: &'a mut Option<Operator>,
    ) -> Result<(&'a State, Vec<operator::Standing>), BrokerError> {
        let operator = match operator {
            Some(operator) => operator,
            None => {
                let broker = Broker::open(&self.to, self.name.clone(), "fyke web").await?;
                operator.insert(Operator::from_snapshot(broker, self.trusted.clone()).await?)
            }
        };
        operator.read().await?;
        operator.forget_log();
        let standings = operator.standings().await?;
        Ok((operator.state(), standings))
    }
}

impl Fleet for Group {
    fn follow(&self, show: &mut dyn FnMut(View) -> bool) {
        let mut view = View { group: self.name.to_string(), ..View::default() };
        let mut answered = unix_ms();
        let ended = wait_for(async {
            let (mut operator, mut known) = (None, Known::default());
            loop {
                match self.read(&mut operator).await {
                    Ok((state, standings)) => {
                        answered = unix_ms();
                        let now = Instant::now();
                        known.take(standings, now);
                        view = known.view(&self.name, state, now);
                    }
                    // It has no edit yet. The page makes nothing at the broker.
                    Err(BrokerError::NoGroup(_)) => {
                        (operator, answered) = (None, unix_ms());
                        view = known.view(&self.name, &State::default(), Instant::now());
                    }
                    Err(error) => {
                        // The group is read anew: a server that comes back may not have it as it was.
                        operator = None;
                        view.away = away(answered, reason(error));
                    }
                }
                if !show(view.clone()) {
                    return Ok(());
                }
                tokio::time::sleep(INTERVAL).await;
            }
        });
        if let Err(error) = ended {
            view.away = away(answered, error.message());
            show(view);
        }
    }
}

/// The sensors that were heard of while a page shows the group, by name.
#[derive(Debug, Default)]
struct Known(BTreeMap<String, KnownSensor>);

#[derive(Debug)]
struct KnownSensor {
    last: operator::Standing,
    /// Time at which its entry changed last.
    heard: Instant,
    heard_unix_ms: u64,
}

impl Known {
    /// Takes the sensors of a reading; one that is no longer listed is kept, and becomes silent.
    fn take(&mut self, standings: Vec<operator::Standing>, now: Instant) {
        for last in standings {
            let is_same = |known: &&KnownSensor| {
                let (known, entry) = (&known.last.entry, &last.entry);
                (&known.instance, known.unix_ms) == (&entry.instance, entry.unix_ms)
            };
            let (heard, heard_unix_ms) = match self.0.get(&last.entry.name).filter(is_same) {
                Some(known) => (known.heard, known.heard_unix_ms),
                None => (now, unix_ms()),
            };
            self.0.insert(last.entry.name.clone(), KnownSensor { last, heard, heard_unix_ms });
        }
        if self.0.len() > MAX_KNOWN {
            self.0.retain(|_, known| now - known.heard <= SILENT);
        }
        while self.0.len() > MAX_KNOWN {
            self.0.pop_last();
        }
    }

    fn view(&self, group: &Name, state: &State, now: Instant) -> View {
        let sensors = self.0.values().map(|known| known.shown(state.sequence, now)).collect();
        let more_filters = state.filters.len().saturating_sub(MAX_FILTERS);
        View {
            group: group.to_string(),
            sequence: state.sequence,
            filters: state.filters.values().skip(more_filters).map(filter).collect(),
            more_filters,
            ..View::of_sensors(sensors)
        }
    }
}

impl KnownSensor {
    fn shown(&self, sequence: u64, now: Instant) -> Sensor {
        let entry = self.last.entry.clone();
        let (source, epoch) = entry.fyke.map(|fyke| (fyke.source, fyke.epoch)).unzip();
        Sensor {
            name: entry.name,
            host: entry.host,
            labels: entry.labels,
            source,
            epoch,
            sequence: entry.sequence,
            refused: entry.refused,
            trouble: entry.trouble,
            standing: self.standing(sequence, now),
        }
    }

    /// The edit with this sequence, the last one, at this sensor.
    fn standing(&self, sequence: u64, now: Instant) -> Standing {
        if now - self.heard > SILENT {
            return Standing::Silent { since_unix_ms: self.heard_unix_ms };
        }
        // A sensor may be ahead: the edit came after the last reading.
        let answered = self.last.last.as_ref().filter(|(answer, _)| answer.sequence >= sequence);
        let Some((answer, unix_ms)) = answered else {
            return match sequence.saturating_sub(self.last.entry.sequence) {
                0 => Standing::Unknown,
                edits => Standing::Lags { edits },
            };
        };
        let since_unix_ms = *unix_ms;
        match &answer.outcome {
            Outcome::InForce { epoch, .. } => {
                Standing::InForce { since_unix_ms, epoch: Some(*epoch) }
            }
            Outcome::Superseded { .. } => Standing::InForce { since_unix_ms, epoch: None },
            Outcome::NotAddressed => Standing::NotAddressed,
            Outcome::Refused { message, .. } => Standing::Refused { message: message.clone() },
        }
    }
}

fn filter(filter: &state::Filter) -> Filter {
    Filter {
        id: filter.id.to_string(),
        author: filter.author.clone(),
        only: filter.only.clone(),
        text: filter.text.clone(),
    }
}

fn away(since_unix_ms: u64, reason: String) -> Option<Away> {
    Some(Away { since_unix_ms, reason })
}

/// The reason without the address of the broker, which may have a password in it.
fn reason(error: BrokerError) -> String {
    match error {
        BrokerError::Connect { why, .. } => why,
        error => error.to_string(),
    }
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
