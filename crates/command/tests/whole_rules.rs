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

/// If the kernel cannot have the rules, the capture judges every frame by the owner's arrays, and counts what they
/// reject; a capture on all interfaces uses the rules of each.
#[test]
fn rules_of_the_owner_hold_where_the_kernel_cannot_have_them() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let script = r#"
        "$FYKE" rules far --own 2> owner.log &
        owner=$!
        owned
        printf '+port=5001\nenable 1\n' | "$FYKE" rules far -F -
        dump() { name=$1; shift; "$FYKE" dump "$@" --rules -w $name.pcapng udp 2> $name.log & pids="$pids $!"; }
        pids=
        dump count -i far --count-all
        dump keep -i far --keep 10s
        dump any -i any
        "$FYKE" run --no-control '(device,far) > (bloom) > (tofile,twice.pcapng)' \
            '(device,far) > (bloom, expression="port=5002") > (tofile,text.pcapng)' 2> twice.log & pids="$pids $!"
        for name in count keep any; do wait_for listens $name.log; done
        wait_for grep -q running twice.log
        send frames.pcap
        sleep 0.3
        "$FYKE" rules any +port=1 2> refused || true
        kill -INT $pids
        wait $pids
        "$FYKE" dump -i xdp:far --rules -w xdp.pcapng udp 2> xdp.log & dump=$!
        wait_for listens xdp.log
        send frames.pcap
        sleep 0.3
        kill -KILL $owner
        wait_for grep -q "has ended: every frame passes" xdp.log
        send frames.pcap
        sleep 0.3
        kill -INT $dump
        wait $dump
    "#;
    let Some(()) = run(folder, script) else { return };
    let log = |name: &str| read(folder, &format!("{name}.log"));
    for name in ["count", "keep", "xdp", "any", "twice"] {
        let log = log(name);
        assert!(log.contains("rules of far: those of process"), "{name}: {log}");
        assert!(log.contains("in user space only"), "{name}: {log}");
    }
    let half = "200 seen = 100 accepted + 100 rejected (100 by rules) + 0 lost";
    for name in ["count", "keep"] {
        let sum = log(name);
        assert!(sum.contains(half), "{name}: {sum}");
    }
    for name in ["count", "keep", "twice"] {
        assert_eq!(count(folder, &format!("{name}.pcapng"), "port 5001"), 100, "{name}");
        assert_eq!(count(folder, &format!("{name}.pcapng"), "port 5002"), 0, "{name}");
    }
    assert_eq!(count(folder, "text.pcapng", "port 5002"), 100, "{}", log("twice"));
    // The frames that leave near have no rules.
    assert_eq!(count(folder, "any.pcapng", "port 5001"), 200, "{}", log("any"));
    assert_eq!(count(folder, "any.pcapng", "port 5002"), 100, "{}", log("any"));
    assert!(log("any").contains("(100 by rules)"), "{}", log("any"));
    assert!(read(folder, "refused").contains("reads the rules of each interface"));
    let xdp = log("xdp");
    assert!(xdp.contains("400 seen = 300 accepted + 100 rejected (100 by rules)"), "{xdp}");
}

/// With -Q, rules and filters judge and count the frames of that direction only.
#[test]
fn rules_and_filters_count_frames_of_the_direction() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let script = r#"
        "$FYKE" rules far --own 2> owner.log & owner=$!
        owned
        printf '+port=5001\nenable 1\n' | "$FYKE" rules far -F -
        pids=
        for way in in out; do
            "$FYKE" dump -i far -Q $way --rules --stats -w $way.pcapng udp 2> $way.log & pids="$pids $!"
            "$FYKE" dump -i far -Q $way --stats --count udp > $way.count 2> plain-$way.log & pids="$pids $!"
            wait_for listens $way.log
            wait_for listens plain-$way.log
        done
        # In twice, out once.
        send frames.pcap
        send frames.pcap
        "$FYKE" run --no-control "(pcapin,frames.pcap) > (tointerface,far)" 2> /dev/null
        sleep 0.3
        kill -INT $pids
        wait $pids
        kill -INT $owner
        wait $owner
    "#;
    let Some(()) = run(folder, script) else { return };
    for (way, all) in [("in", 400), ("out", 200)] {
        let log = read(folder, &format!("{way}.log"));
        let half = all / 2;
        let sum = format!("600 seen = {half} accepted + {} rejected ({half} by rules)", 600 - half);
        assert!(log.contains(&sum), "{sum}\n{log}");
        assert!(log.contains(&format!("filter 1: {half} udp")), "{log}");
        assert_eq!(count(folder, &format!("{way}.pcapng"), "port 5001"), half, "{log}");
        let log = read(folder, &format!("plain-{way}.log"));
        assert!(log.contains(&format!("filter 1: {all} udp")), "{log}");
        assert_eq!(read(folder, &format!("{way}.count")), format!("{all}\n"), "{log}");
    }
}

/// Of two interfaces of a capture each has rules of its own: one joins those of another fyke, the other has them, and a
/// further capture joins these.
#[test]
fn each_interface_of_a_capture_has_its_own_rules() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let script = r#"
        "$FYKE" rules far --own 2> owner.log & owner=$!
        owned
        printf '+port=5001\nenable 1\n' | "$FYKE" rules far -F -
        "$FYKE" dump -i near -i far --rules --stats -w out.pcapng udp 2> log & dump=$!
        wait_for "$FYKE" rules near list
        "$FYKE" dump -i near --rules -w joined.pcapng udp 2> log2 & joined=$!
        wait_for listens log2
        printf '+port=5002\nenable 1\n' | "$FYKE" rules near -F -
        "$FYKE" rules near > near.list
        "$FYKE" rules far > far.list
        send frames.pcap
        sleep 0.3
        "$FYKE" ctl --pid $dump stats > stats
        kill -INT $joined
        wait $joined
        kill -INT $dump
        wait $dump
        # The rules of near went with the capture that had them.
        "$FYKE" rules near list 2> refused || true
        kill -INT $owner
        wait $owner
        ls run > left
    "#;
    let Some(()) = run(folder, script) else { return };
    let (log, joined) = (read(folder, "log"), read(folder, "log2"));
    // Port 5001 comes from far, port 5002 from near.
    assert_eq!(count(folder, "out.pcapng", "port 5001"), 100, "{log}");
    assert_eq!(count(folder, "out.pcapng", "port 5002"), 100, "{log}");
    assert_eq!(count(folder, "joined.pcapng", "port 5002"), 100, "{joined}");
    assert_eq!(count(folder, "joined.pcapng", ""), 100, "{joined}");
    assert!(log.contains("rules of near: owned by this fyke"), "{log}");
    assert!(log.contains("rules of far: those of process"), "{log}");
    assert!(
        log.contains("400 seen = 200 accepted + 200 rejected (200 by rules) + 0 lost"),
        "{log}"
    );
    assert!(joined.contains("rules of near: those of process"), "{joined}");
    assert!(joined.contains("100 accepted + 100 rejected (100 by rules)"), "{joined}");
    let lists = ["near.list", "far.list"].map(|name| read(folder, name));
    assert!(lists[0].contains("+port=5002\n") && !lists[0].contains("5001"), "{lists:?}");
    assert!(lists[1].contains("+port=5001\n") && !lists[1].contains("5002"), "{lists:?}");
    assert!(read(folder, "refused").contains("no fyke of yours"), "{}", read(folder, "refused"));
    assert_eq!(read(folder, "left"), "", "locks, sockets and folders go with their process");
}

/// Rules that cannot be read are refused at the start, with what to do, and never ignored.
#[test]
fn rules_that_cannot_be_read_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let script = r#"
        mkdir own; cp "$FYKE" own/fyke; chmod 755 . own
        few="setpriv --bounding-set=-sys_admin,-bpf,-perfmon"
        nobody() { env -u XDG_RUNTIME_DIR FYKE_RUNTIME_DIR=$PWD/nobody setpriv --reuid=65534 --regid=65534 \
            --clear-groups --inh-caps=$1 --ambient-caps=$1 "${@:2}"; }
        mkdir -m 700 nobody; chown 65534:65534 nobody
        refused() { set +e; "$@" 2>> refused; echo "$? $*" >> status; set -e; }
        "$FYKE" rules far --own 2> owner.log & owner=$!
        owned
        refused $few "$FYKE" dump -i far --rules
        refused $few "$FYKE" dump -i any --rules
        refused $few "$FYKE" run --no-control '(device,far) > (bloom) > (packetcount,export)'
        refused nobody +net_raw own/fyke dump -i far --rules -w /dev/null
        refused nobody -all own/fyke rules far --own
        kill -INT $owner
        wait $owner
        # No fyke has the rules: those of the capture alone.
        $few "$FYKE" dump -i far --rules -w out.pcapng 2> log & dump=$!
        wait_for listens log
        printf '+port=5001\nenable 1\n' | "$FYKE" rules far -F -
        send frames.pcap
        sleep 0.3
        kill -INT $dump
        wait $dump
    "#;
    let Some(()) = run(folder, script) else { return };
    let reasons = [
        "has the rules of far, and this one cannot read them",
        "start as root (CAP_BPF and CAP_SYS_ADMIN)",
        "the rules of far cannot be read",
        "only root can have the rules of far",
        "sudo fyke rules far --own",
    ];
    check_refusals(folder, "11111", &reasons);
    let log = read(folder, "log");
    assert!(log.contains("in user space only"), "{log}");
    assert!(log.contains("100 accepted + 100 rejected (100 by rules)"), "{log}");
    assert_eq!(count(folder, "out.pcapng", "port 5001"), 100, "{log}");
}

/// A capture with rules continues, with its rules, after its interface was deleted and made again; with one ring, which
/// is bound again, and with several, which get new sockets.
#[test]
fn rules_hold_at_an_interface_that_is_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let script = r#"
        for workers in 1 2; do
            "$FYKE" dump -i far --rules --workers $workers -w out$workers.pcapng udp 2> log$workers & dump=$!
            wait_for listens log$workers
            printf '+port=5001\nenable 1\n' | "$FYKE" rules far -F -
            send frames.pcap
            sleep 0.3
            ip link delete far
            wait_for grep -q "far: the interface is gone" log$workers
            veth
            wait_for grep -q "capturing on far again" log$workers
            send frames.pcap
            sleep 0.3
            kill -INT $dump
            wait $dump
        done
    "#;
    let Some(()) = run(folder, script) else { return };
    for workers in ["1", "2"] {
        let (file, log) = (format!("out{workers}.pcapng"), read(folder, &format!("log{workers}")));
        assert_eq!(count(folder, &file, "port 5001"), 200, "{log}");
        assert_eq!(count(folder, &file, "port 5002"), 0, "{log}");
        assert!(log.contains("(200 by rules)"), "{log}");
    }
}

/// Owners end when their interface moves to another network namespace.
#[test]
fn owners_end_when_their_interface_moves_away() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let script = r#"
        for way in --own --tcx --drop; do
            "$FYKE" rules far $way 2> owner$way & owner=$!
            owned
            unshare -n sleep 60 & other=$!
            moved() { [ "$(readlink /proc/$other/ns/net)" != "$(readlink /proc/self/ns/net)" ]; }
            wait_for moved
            ip link set far netns $other
            set +e
            wait $owner; echo "$? $way" >> status
            kill $other; wait $other
            set -e
            ip link delete near 2> /dev/null || true
            veth
        done
    "#;
    let Some(()) = run(folder, script) else { return };
    assert_eq!(read(folder, "status"), "1 --own\n1 --tcx\n1 --drop\n");
    let told = read(folder, "owner--drop");
    assert!(told.contains("far is gone, and its rules with it"), "{told}");
}

/// The rules follow their interface when it is renamed, and while it is down; commands, pipes, captures and the list
/// have the new name.
#[test]
fn rules_follow_an_interface_that_is_renamed() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let script = r#"
        printf '+port=5001\nenable 1\n' > rules.txt
        for way in --own --tcx --drop; do
            "$FYKE" rules far $way -F rules.txt 2> owner$way & owner=$!
            owned
            "$FYKE" dump -i far --rules -w before$way.pcapng udp 2> before$way & before=$!
            wait_for listens before$way
            ip link set far down
            ip link set far name other
            ip link set other up
            wait_for has_carrier other
            wait_for grep -q "far is named other now" owner$way
            wait_for "$FYKE" rules other list
            "$FYKE" dump -i other --rules -w out$way.pcapng udp 2> dump$way & dump=$!
            wait_for listens dump$way
            send frames.pcap
            sleep 0.3
            kill -INT $before $dump
            wait $before $dump
            echo '-port=5001' > run/rules-other/rules
            gone() { ! "$FYKE" rules other list | grep -q port=5001; }
            wait_for gone
            ls run >> during
            set +e
            "$FYKE" rules far list 2>> refused; echo "$? far" >> status
            set -e
            kill -INT $owner
            wait $owner
            ls run >> left
            ip link set other down
            ip link set other name far
            ip link set far up
            wait_for has_carrier far
        done
        # A capture that has the rules is found by the new name, too.
        "$FYKE" dump -i far --rules -w own.pcapng udp 2> log & dump=$!
        wait_for listens log
        ip link set far down
        ip link set far name other
        ip link set other up
        "$FYKE" rules other +port=5001
        "$FYKE" rules other list > listed
        kill -INT $dump
        wait $dump
    "#;
    let Some(()) = run(folder, script) else { return };
    for way in ["--own", "--tcx", "--drop"] {
        let owner = read(folder, &format!("owner{way}"));
        assert!(owner.contains("edit: fyke rules other; pipes: "), "{owner}");
        assert!(owner.contains("/rules-other"), "{owner}");
        for name in ["before", "out"] {
            let file = format!("{name}{way}.pcapng");
            assert_eq!(count(folder, &file, ""), 100, "{file}: {owner}");
            assert_eq!(count(folder, &file, "port 5001"), 100, "{file}: {owner}");
        }
    }
    let owner = read(folder, "owner--drop");
    assert!(owner.contains("200 seen = 100 accepted + 100 rejected (100 by rules)"), "{owner}");
    assert!(!read(folder, "during").contains("rules-far"), "{}", read(folder, "during"));
    check_refusals(folder, "111", &["no fyke of yours has the rules of far"]);
    assert_eq!(read(folder, "left"), "", "locks, sockets and folders go with their process");
    assert!(read(folder, "listed").contains("+port=5001"), "{}", read(folder, "log"));
}

/// Refusals tell what to do, and carets are below the characters that they mean.
#[test]
fn refusals_say_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let script = r#"
        refuse far --own +port=99999
        refuse far --own --take
        refuse far --tcx --take
        refuse far --own --copy-to near
        refuse far --drop --copy-to near
        refuse far --own --bits 536870912
        set +e
        "$FYKE" explain --graph -- rules far --drop 2>> refused; echo "$? explain" >> status
        printf '+port=1\n+port=99999\n' > rules.txt
        set -e
        refuse far --own -F rules.txt
        "$FYKE" rules far --own 2> owner.log & owner=$!
        owned
        refuse far +ip=10.0.0.1,port=x
        kill -INT $owner
        wait $owner
        "$FYKE" rules lo --drop --take 2> owner.log & owner=$!
        wait_for "$FYKE" rules lo list
        FYKE_RUNTIME_DIR=$PWD/other refuse lo --drop --take
        kill -INT $owner
        wait $owner
    "#;
    let Some(()) = run(folder, script) else { return };
    let reasons = [
        "fyke: this command is wrong:\n+port=99999\n      ^ expected",
        "only --drop takes frames from the host",
        "only --tcx copies frames",
        "give fewer of them (--arrays N), or smaller ones (--bits N)",
        "--own, --tcx or --drop runs no graph",
        "line 2:\n+port=99999\n      ^ expected",
        "fyke: this command is wrong:\n+ip=10.0.0.1,port=x\n                  ^ expected",
        "detach it (ip link set dev lo xdp off)",
    ];
    check_refusals(folder, "2222212221", &reasons);
}
