//! The rules of an interface where other things happen: programs of `fyke exec`, tcx, namespaces, load, faults. Real
//! interfaces in namespaces; needs root.

#[path = "common/rules.rs"]
mod rules;

use fyke_testkit::namespace::Script;
use fyke_testkit::packet::Packet;
use fyke_testkit::pcap;
use rules::{check_refusals, count, read, run, run_with};
use std::process::Command;

/// Unmodified programs read the rules of the interface that their sockets are bound to; sockets of other interfaces do
/// not. What the rules reject is counted under that name, and edits of the filter continue to work.
#[test]
fn programs_of_exec_read_the_rules() {
    if Command::new("tcpdump").arg("--version").output().is_err() {
        println!("skipped: tcpdump is not installed");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let script = r#"
        refuse_exec() { set +e; "$FYKE" exec "$@" 2>> refused; echo "$? $*" >> status; set -e; }
        refuse_exec --rules nowhere --filter udp -- true
        refuse_exec --rules far -- true
        "$FYKE" rules far --own 2> owner.log &
        owner=$!
        owned
        shell="tcpdump -Z root -U -ni far -w far.pcap & tcpdump -Z root -U -ni near -w near.pcap & wait"
        "$FYKE" exec --stats --rules far --filter udp -- bash -c "$shell" 2> log &
        exec=$!
        both() { [ $(grep -o "listening on" log | wc -l) = 2 ]; }
        wait_for both
        sleep 2
        printf '+port=5001\nenable 1\n' | "$FYKE" rules far -F -
        send frames.pcap
        # Time for the generated program to take the place of the interpreter, and an edit after it.
        sleep 3
        send frames.pcap
        "$FYKE" ctl --pid $exec set 'udp port 5002'
        send frames.pcap
        "$FYKE" ctl --pid $exec stats > stats
        kill -KILL $owner
        wait_for grep -q "has ended: every frame passes" log
        send frames.pcap
        sleep 1.5
        kill -INT $exec
        wait $exec || true
        # Without an owner, this one has the rules.
        "$FYKE" exec --rules far -- tcpdump -Z root -c 100 -U -ni far -w own.pcap 2> log2 &
        exec=$!
        wait_for grep -q "listening on" log2
        sleep 2
        printf '+port=5001\nenable 1\n' | "$FYKE" rules far -F -
        send frames.pcap
        wait $exec
    "#;
    let set = |script: Script| script.among_all_processes();
    let Some(()) = run_with(folder, script, set) else { return };
    check_refusals(folder, "12", &["no interface nowhere", "give it with --filter"]);
    let log = read(folder, "log");
    assert_eq!(count(folder, "far.pcap", "udp dst port 5001"), 200, "{log}");
    assert_eq!(count(folder, "far.pcap", "udp dst port 5002"), 100, "after the kill: {log}");
    assert_eq!(count(folder, "near.pcap", "udp dst port 5001"), 200, "{log}");
    assert_eq!(count(folder, "near.pcap", "udp dst port 5002"), 400, "{log}");
    assert!(log.contains("rules of far: those of process"), "{log}");
    // Two sockets, four times 200 frames.
    let sum = "1600 seen in the kernel = 900 accepted + 700 rejected (300 by rules)";
    assert!(log.contains(sum), "{log}");
    assert!(read(folder, "stats").contains("(300 by rules)"), "{}", read(folder, "stats"));
    assert_eq!(count(folder, "own.pcap", "udp dst port 5001"), 100, "{}", read(folder, "log2"));
    assert!(read(folder, "log2").contains("owned by this fyke"), "{}", read(folder, "log2"));
}

/// At tcx, frames of both directions are counted and copied by the rules; the host gets all of them.
#[test]
fn rules_copy_frames_of_both_directions_and_the_host_gets_all() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let script = r#"
        ip link add mon0 type veth peer name mon1
        for end in mon0 mon1; do
            sysctl -qw net.ipv6.conf.$end.disable_ipv6=1 || true
            ip link set $end up
        done
        ip addr add 10.9.0.1/24 dev far
        refuse far --tcx --copy-to far
        refuse far --tcx --copy-to nowhere
        refuse far --tcx --own
        refuse far --copy-to mon0
        printf '+port=5001\nenable 1\n' > rules.txt
        "$FYKE" rules far --tcx --copy-to mon0 -F rules.txt 2> owner.log &
        owner=$!
        owned
        "$FYKE" dump -i far -w all.pcapng 2> log &
        all=$!
        "$FYKE" dump -i mon0 -w copies.pcapng 2> log2 &
        copies=$!
        wait_for listens log
        wait_for listens log2
        send frames.pcap
        # The other direction.
        "$FYKE" run --no-control "(pcapin,frames.pcap) > (tointerface,far)" 2> /dev/null
        sleep 0.3
        "$FYKE" ctl --pid $owner stats > stats
        ip link set mon0 down
        send frames.pcap
        "$FYKE" rules far negative 1
        "$FYKE" rules far enable 0
        "$FYKE" rules far reset
        send frames.pcap
        sleep 0.3
        kill -INT $owner
        wait $owner
        kill -INT $all $copies
        wait $all $copies || true
    "#;
    let Some(()) = run(folder, script) else { return };
    let reasons = ["name another interface", "no interface nowhere"];
    check_refusals(folder, "1122", &reasons);
    assert_eq!(count(folder, "all.pcapng", ""), 800);
    assert_eq!(count(folder, "copies.pcapng", "udp dst port 5001"), 200);
    assert_eq!(count(folder, "copies.pcapng", ""), 200);
    let stats = read(folder, "stats");
    assert!(stats.contains("400 seen") && stats.contains("(200 by rules)"), "{stats}");
    let log = read(folder, "owner.log");
    assert!(log.contains("in: 600 seen = 400 passed + 200 rejected by rules"), "{log}");
    assert!(log.contains("out: 200 seen = 100 passed + 100 rejected by rules"), "{log}");
    assert!(log.contains("300 not copied"), "{log}");
}

/// Switches, resets and rules change all the time under load, and an owner is killed: the host gets every frame, and a
/// capture with the rules accounts for each.
#[test]
fn edits_under_load_leave_the_host_alone() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let script = r#"
        "$FYKE" rules far --tcx 2> owner.log &
        owner=$!
        owned
        "$FYKE" dump -i far -w all.pcapng 2> log &
        all=$!
        "$FYKE" dump -i far --rules --stats -w some.pcapng 2> log2 &
        some=$!
        wait_for listens log
        wait_for listens log2
        pipes=run/rules-far
        received() { awk '$1 == "far:" { print $3 }' /proc/net/dev; }
        before=$(received)
        edits() {
            while [ ! -e over ]; do
                printf '+port=5001\n+port=5002\n-port=5002\nnonsense\n' > $pipes/rules
                echo 1 > $pipes/enable
                echo 1 > $pipes/reset
                echo 0 > $pipes/enable
                sleep 0.01
            done
        }
        edits & one=$!
        edits & two=$!
        for n in $(seq 25); do send frames.pcap; done
        kill -KILL $owner
        touch over
        # A pipe whose reader is gone would block a writer for ever.
        kill $one $two || true
        for n in $(seq 5); do send frames.pcap; done
        wait_for grep -q "has ended: every frame passes" log2
        send frames.pcap
        sleep 0.5
        echo $(($(received) - before)) > received
        kill -INT $all $some
        wait $all $some
    "#;
    let Some(()) = run(folder, script) else { return };
    assert_eq!(read(folder, "received").trim(), "6200", "the host's own count");
    assert_eq!(count(folder, "all.pcapng", ""), 6200);
    let log = read(folder, "log2");
    let sum =
        log.lines().find(|line| line.contains("6200 seen = ")).unwrap_or_else(|| panic!("{log}"));
    assert!(sum.contains("by rules) + 0 lost"), "{log}");
    let accepted = count(folder, "some.pcapng", "");
    assert!(
        sum.contains(&format!("= {accepted} accepted + {} rejected", 6200 - accepted)),
        "{log}"
    );
}

/// The interface goes while frames arrive: the owner and the captures that read its rules end or continue with exact
/// sums.
#[test]
fn an_interface_goes_under_load() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let script = r#"
        printf '+port=5001\nenable 1\n' > rules.txt
        for way in --own --tcx --drop; do
            "$FYKE" rules far $way -F rules.txt 2> owner$way & owner=$!
            owned
            "$FYKE" dump -i far --rules --stats -w out$way.pcapng 2> dump$way & dump=$!
            wait_for listens dump$way
            (for n in $(seq 40); do send frames.pcap || true; done) & load=$!
            wait_for "$FYKE" ctl --pid $dump stats
            sleep 0.3
            ip link del far
            set +e
            wait $owner; echo "$?" >> status
            kill -INT $dump 2> /dev/null
            wait $dump; echo "$?" >> ended
            wait $load
            set -e
            veth
        done
        ls run > left
    "#;
    let Some(()) = run(folder, script) else { return };
    assert_eq!(read(folder, "status"), "1\n1\n1\n");
    for way in ["--own", "--tcx", "--drop"] {
        let owner = read(folder, &format!("owner{way}"));
        assert!(owner.contains("far is gone"), "{owner}");
        let log = read(folder, &format!("dump{way}"));
        let sum =
            log.lines().find(|line| line.contains(" seen = ")).unwrap_or_else(|| panic!("{log}"));
        let number = |before: &str| -> u64 {
            let words: Vec<_> = sum.split([' ', ';']).collect();
            let at =
                words.iter().position(|word| *word == before).unwrap_or_else(|| panic!("{sum}"));
            words[at - 1].parse().unwrap_or_else(|_| panic!("{sum}"))
        };
        assert!(number("seen") > 0, "{log}");
        assert_eq!(
            number("seen"),
            number("accepted") + number("rejected") + number("lost"),
            "{log}"
        );
        let written = u64::from(count(folder, &format!("out{way}.pcapng"), ""));
        assert_eq!(number("accepted"), written, "{log}");
    }
    let left = read(folder, "left");
    assert!(left.lines().all(|name| name != "rules-far"), "{left}");
}

/// Frames with headers that the kernel's program does not read are judged in user space, by the arrays of the owner.
#[test]
fn frames_that_the_program_cannot_read_are_judged() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let v4 = |packet: Packet| packet.ipv4([10, 0, 0, 1], [10, 0, 0, 2]);
    let udp = |packet: Packet, port| v4(packet).udp(4000, port).payload(&[7; 20]);
    let inside = |port| udp(v4(Packet::ethernet()).vxlan(9).ether(), port);
    let kinds = [
        udp(Packet::ethernet(), 53),
        udp(Packet::ethernet(), 54),
        inside(53),
        inside(54),
        v4(Packet::ethernet()).ip_options(&[1, 1, 1, 1, 7, 4, 4, 0]).udp(4000, 54),
        Packet::ethernet().arp(1, [10, 0, 0, 1], [10, 0, 0, 2]),
    ];
    let mut frames: Vec<_> = kinds.iter().map(Packet::build).collect();
    // An unknown protocol.
    frames.push([&[2; 12][..], &[0x88, 0xb5], &[7; 46]].concat());
    std::fs::write(folder.join("kinds.pcap"), pcap::file(1, &frames)).unwrap();
    let script = r#"
        printf '+port=53\nenable 1\n' > rules.txt
        "$FYKE" rules far --own -F rules.txt 2> owner.log & owner=$!
        owned
        "$FYKE" dump -i far --rules --stats -w out.pcapng 2> log & dump=$!
        wait_for listens log
        send kinds.pcap
        sleep 0.3
        "$FYKE" rules far reset
        "$FYKE" rules far list > listed
        send kinds.pcap
        sleep 0.3
        kill -KILL $owner
        wait_for grep -q "has ended: every frame passes" log
        send kinds.pcap
        "$FYKE" rules far list 2> ended || true
        sleep 0.3
        kill -INT $dump
        wait $dump
        "$FYKE" rules far --drop -F rules.txt 2> drop.log & owner=$!
        owned
        send kinds.pcap
        sleep 0.3
        kill -INT $owner
        wait $owner
    "#;
    let Some(()) = run(folder, script) else { return };
    let log = read(folder, "log");
    assert!(log.contains("21 seen = 16 accepted + 5 rejected (5 by rules) + 0 lost"), "{log}");
    assert!(log.contains("(on)"), "the state at the start: {log}");
    assert_eq!(count(folder, "out.pcapng", ""), 16);
    assert!(read(folder, "listed").contains("no rule: every frame passes"));
    let ended = read(folder, "ended");
    assert!(ended.contains("which had the rules, has ended"), "{ended}");
    // At XDP there is no second judgement; ARP names nothing that a rule can.
    let log = read(folder, "drop.log");
    assert!(log.contains("7 seen = 5 accepted + 2 rejected (2 by rules)"), "{log}");
}

/// Two namespaces have an interface of the same name: each owner has pipes of its own, and a command reaches the owner
/// of its namespace only.
#[test]
fn namespaces_have_rules_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let script = r#"
        "$FYKE" rules far --own 2> owner.log & one=$!
        owned
        other() { unshare -n bash -c "ip link add near type veth peer name far; $1"; }
        set +e
        other '"$FYKE" rules far +port=1' 2> refused; echo $? > status
        set -e
        other '"$FYKE" rules far --own 2> log & owner=$!
            while ! "$FYKE" rules far list > /dev/null 2>&1; do sleep 0.05; done
            folder=$(sed -n "s/.*refused lines: //p" log)
            printf "+port=77" > $folder/rules
            sleep 0.3
            printf "+port=78\n+port=79\n" > $folder/rules
            while ! "$FYKE" rules far list | grep -q port=79; do sleep 0.05; done
            "$FYKE" rules far list > listed
            kill -INT $owner; wait $owner'
        echo +port=9 > run/rules-far/rules
        mine() { "$FYKE" rules far list > mine; grep -q port=9 mine; }
        wait_for mine
        kill -INT $one
        wait $one
        ls run > left
    "#;
    let Some(()) = run(folder, script) else { return };
    assert_eq!(read(folder, "status"), "1\n");
    let refused = read(folder, "refused");
    assert!(
        refused.contains("in this network namespace") && refused.contains("--own"),
        "{refused}"
    );
    let listed = read(folder, "listed");
    for rule in ["+port=77\n", "+port=78\n", "+port=79\n"] {
        assert!(listed.contains(rule), "{listed}");
    }
    assert!(!read(folder, "mine").contains("port=7"), "{}", read(folder, "mine"));
    let left = read(folder, "left");
    assert!(
        !left.lines().any(|name| name.starts_with("rules-far") && !name.ends_with(".lock")),
        "{left}"
    );
}

/// Dropping is refused under other interfaces and for routes of any table, and an address that comes later is told.
#[test]
fn dropping_sees_all_that_the_host_uses() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let script = r#"
        ip route add 10.56.0.0/16 dev far table 77
        refuse far --drop
        ip route flush table 77
        ip link add link far name upper type macvlan mode bridge
        refuse far --drop
        ip link del upper
        "$FYKE" rules far --drop 2> owner.log & owner=$!
        owned
        ip addr add 10.1.2.3/24 dev far
        wait_for grep -q "far has the address 10.1.2.3 now" owner.log
        kill -INT $owner
        wait $owner
    "#;
    let Some(()) = run(folder, script) else { return };
    let reasons = ["the route to 10.56.0.0/16, table 77", "far carries the macvlan upper"];
    check_refusals(folder, "11", &reasons);
}

/// The pipes of an owner that was killed go with it, under their present name. If the process that removes them was
/// killed first, they stay until the next owner, and a program that waits for a reader is refused then.
#[test]
fn pipes_of_a_killed_owner_do_not_stay() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let script = r#"
        own() { "$FYKE" rules $1 --own > /dev/null 2> owner.log & owner=$!; wait_for "$FYKE" rules $1 list; }
        trap 'kill -KILL $owner 2> /dev/null || true' EXIT
        gone() { ! test -e $1; }
        own far
        ip link set far down
        ip link set far name other
        ip link set other up
        wait_for test -p run/rules-other/rules
        kill -KILL $owner
        wait_for gone run/rules-other
        wait $owner || true
        own other
        read remover < /proc/$owner/task/$owner/children || true
        cat /proc/$remover/comm > comm
        kill -KILL $remover
        kill -KILL $owner
        wait $owner || true
        ls run/rules-other > stayed
        timeout 20 bash -c "echo +port=7 > run/rules-other/rules" 2> /dev/null & writer=$!
        sleep 0.5
        own other
        set +e
        wait $writer
        echo $? > status
        set -e
        "$FYKE" rules other list > listed
        kill -INT $owner
        wait $owner
        ls run > left
    "#;
    let set = |script: Script| script.among_all_processes();
    let Some(()) = run_with(folder, script, set) else { return };
    assert_eq!(read(folder, "comm"), "fyke-pipes\n");
    assert_eq!(read(folder, "stayed"), "enable\nreset\nrules\nrules.error\n");
    // By SIGPIPE, by the error of its write, or with a line that nothing read before the old pipe was closed.
    let status = read(folder, "status");
    assert!(["141\n", "1\n", "0\n"].contains(&status.as_str()), "{status}");
    let listed = read(folder, "listed");
    assert!(listed.contains("enable 0") && !listed.contains("port=7"), "{listed}");
    assert!(!read(folder, "left").contains("rules-"), "{}", read(folder, "left"));
}
