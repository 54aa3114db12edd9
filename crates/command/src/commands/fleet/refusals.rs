//! Refusals of workers, as `fyke fleet scan` and `fyke fleet sums` print them.

use crate::commands::one_line;
use anyhow::anyhow;
use fyke_fleet::refused::Refusal;
use fyke_fleet::scan::Scan;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Time between two looks for refusals.
const LOOK: Duration = Duration::from_millis(500);
/// Time without any result, refusal or begun job after which the lack of workers is told.
const UNATTENDED: Duration = Duration::from_secs(5);
/// Most refusals that are named.
const NAMED: usize = 100;

/// The line about a refusal; `messages` are jobs or batches, `key` is the line of the author for `--trust` files.
pub fn line(refusal: &Refusal, messages: &str, key: Option<&str>) -> String {
    let Refusal { worker, author, reason, for_key, ended, .. } = refusal;
    let advice = match (for_key, key) {
        (false, _) => String::new(),
        (true, Some(key)) => {
            format!("; add this line to its --trust file, and start it again: {key}")
        }
        (true, None) => {
            format!(
                "; add the public line of {author} to its --trust file, and start it again \
                 (`fyke fleet key` printed the line)"
            )
        }
    };
    let what = match (ended, author.as_str()) {
        (true, _) => "removed a message that is not of fyke".to_owned(),
        (false, "") => format!("refuses {messages}"),
        (false, author) => format!("refuses {messages} of {author}"),
    };
    one_line(&format!("worker {worker} {what}: {reason}{advice}")).into_owned()
}

/// The line about a scan of which no worker does a job.
fn unattended(group: &str) -> String {
    format!(
        "no worker of the group {group} does a job of this scan; if none runs, start one: fyke worker --group {group} \
         --trust FILE --root DIR"
    )
}

/// A refusal as JSON.
pub fn json(refusal: &Refusal) -> Value {
    let Refusal { worker, author, reason, .. } = refusal;
    json!({"worker": worker, "author": author, "reason": reason})
}

/// The refusals of a scan, and the time without a result.
pub struct Refusals {
    /// Time without a result after which a scan that is refused ends.
    patience: Option<Duration>,
    /// The line of the author for `--trust` files, if the key is known.
    key: Option<String>,
    named: Vec<Refusal>,
    /// Since when there is no result.
    idle: Option<Instant>,
    is_refused: bool,
    /// True once the lack of workers has been told.
    is_unattended: bool,
    looked: Instant,
}

impl Refusals {
    /// None yet; with a patience of 0 s a scan does not end.
    pub fn new(patience_s: u64, key: Option<String>) -> Refusals {
        Refusals {
            patience: Some(Duration::from_secs(patience_s)).filter(|time| !time.is_zero()),
            key,
            named: Vec::new(),
            idle: None,
            is_refused: false,
            is_unattended: false,
            looked: Instant::now(),
        }
    }

    /// Names new refusals; true if only refusals have come for so long that the scan has to end.
    pub async fn look(&mut self, scan: &mut Scan, has_results: bool) -> anyhow::Result<bool> {
        if has_results {
            (self.idle, self.is_refused) = (None, false);
        }
        let idle = *self.idle.get_or_insert_with(Instant::now);
        if self.looked.elapsed() < LOOK {
            return Ok(false);
        }
        self.looked = Instant::now();
        for refusal in scan.refusals().await? {
            self.is_refused |= !refusal.ended;
            let is_new = !self.named.iter().any(|named| named.is_like(&refusal));
            if is_new && self.named.len() < NAMED {
                note!("fyke: {}", line(&refusal, "jobs", self.key.as_deref()));
                self.named.push(refusal);
            }
        }
        let is_silent = idle.elapsed() >= UNATTENDED && self.named.is_empty();
        if is_silent && !self.is_unattended && !scan.is_worked_on().await? {
            self.is_unattended = true;
            note!("fyke: {}", unattended(scan.group()));
        }
        let has_waited = self.patience.is_some_and(|patience| idle.elapsed() >= patience);
        Ok(has_waited && self.is_refused && !scan.is_worked_on().await?)
    }

    /// The error of a scan that ends because its jobs are refused; `removed` of them were still there.
    pub fn error(&self, scan: &Scan, removed: u64) -> anyhow::Error {
        let seconds = self.patience.unwrap_or_default().as_secs();
        anyhow!(
            "scan {}: {} of {} files have a result, and for {seconds} s workers only refused jobs (the lines \
             above name them and the reason): {removed} jobs were removed; after the workers accept them, start \
             the scan again",
            scan.id().as_str(),
            scan.sums().done,
            scan.files()
        )
    }

    /// The refusals as JSON.
    pub fn json(&self) -> Value {
        self.named.iter().map(json).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_tells_its_reason_and_the_remedy() {
        let refusal = Refusal {
            worker: "w1".to_owned(),
            author: "eve".to_owned(),
            message: 1,
            deliveries: 1,
            reason: "\"eve\" is not a trusted author".to_owned(),
            for_key: true,
            ended: false,
        };
        assert_eq!(
            line(&refusal, "jobs", Some("eve 00ff")),
            "worker w1 refuses jobs of eve: \"eve\" is not a trusted author; add this line to its --trust file, and \
             start it again: eve 00ff"
        );
        assert!(line(&refusal, "jobs", None).contains("the public line of eve"));
        let later = Refusal { for_key: false, reason: "version 9".into(), ..refusal.clone() };
        assert_eq!(line(&later, "batches", None), "worker w1 refuses batches of eve: version 9");
        let foreign = Refusal { ended: true, author: String::new(), ..later };
        assert!(line(&foreign, "jobs", None).contains("is not of fyke: version 9"));
    }
}
