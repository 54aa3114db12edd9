//! `fyke rules` that owns the rules of an interface: captures that read them in the kernel, XDP, pipes, faults. Real
//! interfaces in namespaces; needs root.

#[path = "common/rules.rs"]
mod rules;

use rules::{check_refusals, count, read, run};

/// Two captures read the rules that a third process owns: rules are in force at once, are counted by name, and belong
/// to the sum; when the owner is killed, every frame passes.
#[test]
fn captures_read_the_rules_of_an_interface_in_the_kernel() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let script = r#"
        "$FYKE" rules far --own 2> owner.log &
        owner=$!
        owned
        "$FYKE" dump -i far --rules --stats -w out.pcapng udp 2> log &
        first=$!
        "$FYKE" run --no-control "(device,far) > (bloom) > (tofile,graph.pcapng)" 2> log2 &
        second=$!
        "$FYKE" dump -i far -w plain.pcapng 2> /dev/null &
        third=$!
        wait_for listens log
        wait_for grep -q "those of process $owner" log2
        wait_for test -s plain.pcapng
        send frames.pcap
        sleep 0.3
        "$FYKE" rules far +port=5001
        "$FYKE" rules far enable 1
        send frames.pcap
        # User space judges what the kernel has passed once more, by the rules of that time.
        sleep 0.3
        "$FYKE" rules far negative 1
        send frames.pcap
        "$FYKE" rules far list > listed
        set +e
        "$FYKE" rules far --own 2> again; echo $? > status
        set -e
        sleep 0.3
        "$FYKE" ctl --pid $first stats > stats
        kill -KILL $owner
        wait_for grep -q "has ended: every frame passes" log
        wait_for grep -q "has ended: every frame passes" log2
        send frames.pcap
        sleep 0.3
        kill -INT $first $second $third
        wait $first $second $third
    "#;
    let Some(()) = run(folder, script) else { return };
    let told = || ["log", "log2", "stats"].map(|name| read(folder, name)).join("\n");
    for file in ["out.pcapng", "graph.pcapng"] {
        // Off, matching, negative, without the owner.
        assert_eq!(count(folder, file, "udp dst port 5001"), 300, "{file}: {}", told());
        assert_eq!(count(folder, file, "udp dst port 5002"), 300, "{file}: {}", told());
    }
    assert_eq!(count(folder, "plain.pcapng", ""), 800, "captures without --rules are untouched");
    assert!(read(folder, "listed").contains("enable 1\nnegative 1\n+port=5001\n"));
    assert_eq!(read(folder, "status"), "1\n");
    assert!(read(folder, "again").contains("has the rules of far already"));
    let sum = "800 seen = 600 accepted + 200 rejected (200 by rules) + 0 lost";
    assert!(read(folder, "log").contains(sum), "{}", read(folder, "log"));
    assert!(
        read(folder, "log").contains("rules of far: those of process"),
        "{}",
        read(folder, "log")
    );
    assert!(read(folder, "log2").contains(sum), "{}", read(folder, "log2"));
    assert!(read(folder, "stats").contains("(200 by rules)"), "{}", read(folder, "stats"));
}

/// A capture with --rules owns the rules if no other fyke does: others join it.
#[test]
fn a_capture_owns_the_rules_that_are_free() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let script = r#"
        "$FYKE" dump -i far --rules -w out.pcapng 2> log &
        first=$!
        answers
        "$FYKE" dump -i far --rules -w joined.pcapng udp 2> log2 &
        second=$!
        wait_for grep -q "those of process $first" log2
        printf '# both ports\n+port=5001,proto=udp\n\nenable 1\n' | "$FYKE" rules far -F -
        set +e
        printf '+port=1\n+port=2\n-port=3\n' | "$FYKE" rules far -F - 2> refused; echo $? > status
        set -e
        "$FYKE" rules far > listed
        send frames.pcap
        sleep 0.3
        kill -INT $second
        wait $second
        kill -INT $first
        wait $first
    "#;
    let Some(()) = run(folder, script) else { return };
    for (file, log) in [("out.pcapng", "log"), ("joined.pcapng", "log2")] {
        assert_eq!(count(folder, file, "udp dst port 5001"), 100, "{file}");
        assert_eq!(count(folder, file, ""), 100, "{file}");
        let sum = "200 seen = 100 accepted + 100 rejected (100 by rules) + 0 lost";
        assert!(read(folder, log).contains(sum), "{}", read(folder, log));
    }
    assert_eq!(read(folder, "status"), "2\n");
    let refused = read(folder, "refused");
    assert!(refused.contains("line 3") && refused.contains("no rule `port=3`"), "{refused}");
    assert!(!read(folder, "listed").contains("port=1\n"), "all lines or none");
}

/// Dropping at XDP is refused, with the reason, where the host uses the interface; nonsense is, too.
#[test]
fn dropping_is_refused_where_the_host_needs_frames() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let script = r#"
        refuse nowhere --drop
        refuse nowhere --own
        ip link set lo up
        refuse lo --drop
        ip addr add 10.1.2.3/24 dev far
        refuse far --drop
        ip addr del 10.1.2.3/24 dev far
        ip route add 10.7.0.0/16 dev far
        refuse far --drop
        ip route del 10.7.0.0/16 dev far
        ip link add bridge0 type bridge
        ip link set far master bridge0
        refuse far --drop
        ip link set far nomaster
        refuse far --take
        refuse far --drop --own
        refuse far --drop --bits 7
        refuse far --own --bits 536870912
        refuse far --bits 64
        refuse far --own --hash-pairs 3
        refuse far --own --prefixes ip/33
        refuse far --own --prefixes ip/32,ip/24 --arrays 2
        refuse far --own --prefixes ip/24 +ip=10.0.0.1
        refuse far --drop +port=99999
        refuse far --own -F absent
    "#;
    let Some(()) = run(folder, script) else { return };
    let reasons = [
        "no interface nowhere",
        "lo has the address 127.0.0.1",
        "far has the address 10.1.2.3",
        "far carries the route to 10.7.0.0/16",
        "far is a port of the bridge bridge0",
        "take more than 64 MiB",
        "--bits: arrays are sized at the start",
        "3 is not in 1..=2",
        "found `ip/33`",
        "--prefixes needs 3 arrays",
        "there are arrays for ip/24 only",
        "1 to 65535",
        "cannot read absent",
    ];
    check_refusals(folder, "11111122212222221", &reasons);
}

/// Of several fykes that begin at the same time, one owns the rules; the others join it or are refused.
#[test]
fn one_of_several_owns_the_rules() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let script = r#"
        pids=
        for n in 1 2; do
            "$FYKE" rules far --own 2> own$n & pids="$pids $!"
        done
        for n in 3 4; do
            "$FYKE" dump -i far --rules -w out$n.pcapng 2> own$n & pids="$pids $!"
        done
        settled() { [ $(cat own? | grep -cE 'owned by|--rules; edit|those of|already') = 4 ]; }
        wait_for settled
        cat own? > all
        kill -INT $pids 2> /dev/null || true
        wait
    "#;
    let Some(()) = run(folder, script) else { return };
    let all = read(folder, "all");
    let owners = all.matches("owned by this fyke").count() + all.matches("read them with").count();
    assert_eq!(owners, 1, "{all}");
}

/// XDP drops what the rules reject and is refused where another program is; a kill takes it off; it ends with its
/// interface.
#[test]
fn rules_drop_at_xdp_and_a_kill_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let script = r#"
        printf '+port=5001\nenable 1\n' > rules.txt
        "$FYKE" rules far --drop -F rules.txt 2> owner.log &
        owner=$!
        owned
        ip -d link show far > linked
        refuse far --drop --take
        FYKE_RUNTIME_DIR=$PWD/other refuse far --drop
        ip link set lo up
        "$FYKE" rules lo --drop --take 2> lo.log &
        generic=$!
        wait_for "$FYKE" rules lo list
        kill -INT $generic
        wait $generic
        "$FYKE" dump -i far -w out.pcapng 2> log &
        dump=$!
        wait_for "$FYKE" ctl --pid $dump show
        send frames.pcap
        ip link set far down
        ip link set far up
        sleep 0.2
        send frames.pcap
        sleep 0.3
        "$FYKE" ctl --pid $owner stats > stats
        kill -KILL $owner
        wait_for sh -c '! ip -d link show far | grep -q xdp'
        send frames.pcap
        sleep 0.3
        kill -INT $dump
        wait $dump
        "$FYKE" rules far --drop -F rules.txt 2> owner.log &
        owner=$!
        owned
        send frames.pcap
        sleep 0.2
        ip link del far
        set +e
        wait $owner; echo "$? gone" >> status
    "#;
    let Some(()) = run(folder, script) else { return };
    assert_eq!(count(folder, "out.pcapng", "port 5001"), 300);
    assert_eq!(count(folder, "out.pcapng", "port 5002"), 100, "only after the kill");
    let reasons = ["has the rules of far already", "runs the XDP program fyke_drop"];
    check_refusals(folder, "111", &reasons);
    assert!(read(folder, "lo.log").contains("generic XDP"), "{}", read(folder, "lo.log"));
    assert!(read(folder, "linked").contains("xdp"), "{}", read(folder, "linked"));
    assert!(read(folder, "stats").contains("400 seen"), "{}", read(folder, "stats"));
    let log = read(folder, "owner.log");
    assert!(log.contains("native XDP") && log.contains("far is gone"), "{log}");
    assert!(log.contains("200 seen = 100 accepted + 100 rejected (100 by rules)"), "{log}");
}

/// Lines of the pipes are commands: writers at the same time, refused lines, and the end of the owner.
#[test]
fn pipes_take_the_lines_of_the_paper() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let script = r#"
        "$FYKE" rules far --own --bits 65536 --arrays 4 --hash-pairs 2 --prefixes ip/32,ip6/64 2> owner.log &
        owner=$!
        owned
        pipes=run/rules-far
        stat -c '%a %n' $pipes/* > modes
        echo +ip=192.168.0.10,port=80 > $pipes/rules
        write() { for n in $(seq $1 $2); do echo "+port=$n" > $pipes/rules; done; }
        write 1001 1200 & one=$!
        write 2001 2200 & two=$!
        wait $one $two
        echo 1 > $pipes/enable
        listed() { "$FYKE" rules far > listed; [ $(grep -c '^+' listed) = 401 ] && grep -q 'enable 1' listed; }
        wait_for listed
        echo nonsense > $pipes/rules
        echo 7 > $pipes/enable
        head -c 9000 /dev/zero | tr '\0' x > $pipes/rules
        echo > $pipes/rules
        echo +port=7 > $pipes/rules
        wait_for grep -q 1024 $pipes/rules.error
        wait_for sh -c '"$FYKE" rules far | grep -q "^+port=7$"'
        cp $pipes/rules.error errors
        echo 1 > $pipes/reset
        emptied() { ! "$FYKE" rules far | grep -q '^+'; }
        wait_for emptied
        kill -INT $owner
        wait $owner
        ls run > left
    "#;
    let Some(()) = run(folder, script) else { return };
    let modes = read(folder, "modes");
    assert_eq!(modes.lines().filter(|line| line.starts_with("600 ")).count(), 4, "{modes}");
    let errors = read(folder, "errors");
    for reason in ["nonsense\n^ expected", "enable 7\n", "at most 1024 bytes"] {
        assert!(errors.contains(reason), "{reason}\n{errors}");
    }
    let left = read(folder, "left");
    assert!(left.lines().all(|name| name != "rules-far"), "{left}");
    let log = read(folder, "owner.log");
    assert!(log.contains("bits (8 KiB)"), "{log}");
    assert!(log.contains("(ip/32,ip6/64) of 65536 bits"), "{log}");
    assert!(log.contains("4 hash functions") && log.contains("1.2e-5 at 1000"), "{log}");
    let listed = read(folder, "listed");
    assert!(listed.contains("a frame with ports: 4 look-ups"), "{listed}");
}
