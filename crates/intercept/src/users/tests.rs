//! Tests of the users and their places.

use super::*;
use fyke_frame::LinkType;
use fyke_testkit::packet::Packet;

const KEY: &str = "age1zvkyg2lqzraa2lnjvqej32nkuu0ues2s82hzrye869xeexvn73equnujwj";

fn warrant(id: &str, user: &str) -> Warrant {
    Warrant {
        id: id.to_owned(),
        subject: Subject::Named(Name::User(user.into())),
        from_ns: 0,
        until_ns: u64::MAX,
        key: crate::age::Recipient::parse(KEY).unwrap(),
    }
}

fn start(user: &str, session: &str, hosts: &[u8]) -> Fact {
    Fact::Assigned {
        who: vec![Name::User(user.into())],
        session: session.into(),
        places: hosts.iter().map(|host| Place::Host([10, 0, 0, *host].into())).collect(),
        lifetime_ns: None,
        why: "RADIUS Start",
    }
}

fn stop(session: &str) -> Fact {
    Fact::Ended { session: session.into(), why: "RADIUS Stop", forever: true }
}

/// The users that have the address.
fn at(users: &Users, host: u8) -> Vec<usize> {
    let bytes = Packet::ethernet().ipv4([10, 0, 0, host], [9, 9, 9, 9]).udp(1, 2).build();
    let mut found = Vec::new();
    users.of(&Frame::new(LinkType::EN10MB, &bytes), &mut found);
    found
}

fn apply(users: &mut Users, fact: Fact, now_ns: u64) -> usize {
    let mut changes = Vec::new();
    users.apply(fact, now_ns, &mut changes);
    changes.len()
}

#[test]
fn two_users_swap_addresses_with_and_without_a_stop() {
    let mut users = Users::new(&[warrant("A", "alice"), warrant("B", "bob")]);
    apply(&mut users, start("alice", "a", &[1]), 0);
    apply(&mut users, start("bob", "b", &[2]), 0);
    assert_eq!((at(&users, 1), at(&users, 2)), (vec![0], vec![1]));
    // Interim messages, without a Stop before them.
    apply(&mut users, start("alice", "a", &[2]), 1);
    assert_eq!((at(&users, 1), at(&users, 2)), (vec![], vec![0]));
    apply(&mut users, start("bob", "b", &[1]), 2);
    assert_eq!((at(&users, 1), at(&users, 2)), (vec![1], vec![0]));
    // With Stop and new sessions.
    apply(&mut users, stop("a"), 3);
    apply(&mut users, stop("b"), 3);
    assert_eq!((at(&users, 1), at(&users, 2)), (vec![], vec![]));
    apply(&mut users, start("alice", "a2", &[1]), 4);
    apply(&mut users, start("bob", "b2", &[2]), 4);
    assert_eq!((at(&users, 1), at(&users, 2)), (vec![0], vec![1]));
}

#[test]
fn an_address_of_another_user_is_not_followed_and_a_late_start_changes_nothing() {
    let mut users = Users::new(&[warrant("A", "alice"), warrant("A2", "alice")]);
    assert_eq!(apply(&mut users, start("alice", "a", &[1, 2]), 0), 2);
    assert_eq!(users.warrants(0), [0, 1]);
    assert_eq!(apply(&mut users, start("carol", "c", &[1]), 0), 1);
    assert_eq!((at(&users, 1), at(&users, 2)), (vec![], vec![0]));
    assert_eq!(apply(&mut users, stop("a"), 1), 1);
    assert_eq!(apply(&mut users, start("alice", "a", &[2]), 2), 0);
    assert_eq!((at(&users, 2), users.late), (vec![], 1));
    assert_eq!(apply(&mut users, start("alice", "a", &[2]), ENDED_NS + 2), 1);
    // The same session under another name.
    assert_eq!(apply(&mut users, start("carol", "a", &[3]), ENDED_NS + 3), 1);
    assert!(at(&users, 2).is_empty());
}

#[test]
fn places_of_many_and_more_places_than_allowed_are_refused() {
    let mut users = Users::new(&[warrant("A", "alice")]);
    let everywhere = Fact::Assigned {
        who: vec![Name::User("alice".into())],
        session: vec![1],
        places: vec![
            Place::Prefix("2000::".parse().unwrap(), 3),
            Place::Host([255, 255, 255, 254].into()),
            Place::Host([0, 0, 0, 0].into()),
        ],
        lifetime_ns: None,
        why: "RADIUS Start",
    };
    assert_eq!((apply(&mut users, everywhere, 0), users.refused), (0, 3));
    for session in 0..100u8 {
        apply(&mut users, start("alice", &session.to_string(), &[session + 1]), 0);
    }
    assert_eq!((users.bindings().count(), users.refused), (PLACES, 39));
}

#[test]
fn places_end_without_messages() {
    let mut users = Users::new(&[warrant("A", "alice")]);
    let fact = |lifetime_ns| match start("alice", "a", &[1]) {
        Fact::Assigned { who, session, places, why, .. } => {
            Fact::Assigned { who, session, places, why, lifetime_ns: Some(lifetime_ns) }
        }
        other => other,
    };
    apply(&mut users, fact(10), 0);
    apply(&mut users, fact(10), 5);
    let mut changes = Vec::new();
    users.expire(14, &mut changes);
    assert_eq!((changes.len(), users.deadline_ns()), (0, 15));
    users.expire(15, &mut changes);
    assert_eq!((changes.len(), at(&users, 1).len()), (1, 0));
}
