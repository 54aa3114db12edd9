//! Snapshots with a real server: a new sensor begins with the last one, and with all edits if it trusts other authors.
//! `FYKE_EDITS` sets another number of edits, and `--nocapture` prints the times of both.

mod common;

use common::{Served, author};
use fyke_fleet::broker::Broker;
use fyke_fleet::edit::{Change, Edit, Labels, VERSION};
use fyke_fleet::keys::{Author, Trusted};
use fyke_fleet::operator::Operator;
use fyke_fleet::snapshot;
use std::time::{Duration, Instant};

fn edits() -> u64 {
    std::env::var("FYKE_EDITS").map_or(snapshot::EVERY + 100, |text| text.parse().unwrap())
}

/// Publishes edits without an operator, which reads after each: each adds a filter, and removes the one of 100 before.
async fn publish(broker: &Broker, author: &Author, count: u64) {
    for after in 0..count {
        let mut changes = vec![Change::Add { text: format!("udp port {after}") }];
        let old = (after + 1).checked_sub(100).filter(|sequence| *sequence > 0);
        changes.extend(old.map(|sequence| Change::Delete {
            id: fyke_fleet::edit::FilterId { sequence, place: 0 },
        }));
        let edit = Edit {
            version: VERSION,
            group: "edge".to_owned(),
            after,
            unix_ms: 0,
            only: Labels::new(),
            changes,
            undoes: None,
        };
        let message = edit.signed(author).unwrap();
        assert_eq!(broker.publish(message, after).await.unwrap(), after + 1);
    }
}

#[tokio::test]
async fn a_snapshot_is_as_good_as_all_edits() {
    let Some(served) = Served::start() else { return };
    let (anna, bert) = (&served.author, author(served.folder(), "bert"));
    let trusted = served.trusted();
    let both = format!("{}\n{}\n", anna.public_line(), bert.public_line());
    let both = Trusted::from_text(&both).unwrap();
    let connect = || served.connect("test");
    let broker = connect().await;
    assert!(snapshot::load(&broker, &trusted).await.unwrap().is_none());
    // The last edit of a thousand is made by an operator, which stores the snapshot.
    let count = edits() / snapshot::EVERY * snapshot::EVERY;
    publish(&broker, anna, count - 1).await;
    let mut operator = Operator::new(connect().await, trusted.clone()).await.unwrap();
    for number in 0..3 {
        let changes = vec![Change::Add { text: format!("tcp port {number}") }];
        let all = Labels::new();
        let made = operator.edit(anna, &all, changes, None, Duration::ZERO).await;
        assert_eq!(made.unwrap().sequence, count + number);
    }
    let taken = snapshot::load(&broker, &trusted).await.unwrap().expect("there is a snapshot");
    assert_eq!(taken.sequence, count);
    let refused = snapshot::load(&broker, &both).await.unwrap_err().to_string();
    assert!(refused.contains("trusts other authors"), "{refused}");
    let start = Instant::now();
    let quick = Operator::from_snapshot(connect().await, trusted.clone()).await.unwrap();
    let with_snapshot = start.elapsed();
    assert_eq!((quick.state(), quick.log().len()), (operator.state(), 2));
    let start = Instant::now();
    let all = Operator::from_snapshot(connect().await, both).await.unwrap();
    println!("{count} edits: {with_snapshot:?} with the snapshot, {:?} without", start.elapsed());
    assert_eq!(all.state(), operator.state());
    assert_eq!(all.log().len() as u64, count + 2);
    // The next snapshot removes the parts of the one before.
    assert!(!snapshot::store(&broker, operator.state(), anna, &trusted).await.unwrap());
}
