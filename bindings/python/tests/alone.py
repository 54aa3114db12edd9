"""The package without any other one: filters, captures, graphs, services, edits from outside, errors, forks, threads.

Run by tests/package.rs in a network namespace of its own; FYKE_COMMAND is the command.
"""

import os
import pathlib
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import fyke

FYKE = os.environ.get("FYKE_COMMAND", "fyke")
LIMIT = 30.0


def udp(source: int, destination: int, payload: bytes = b"payload") -> bytes:
    """A UDP packet in Ethernet, 10.0.0.1 to 10.0.0.2."""
    header = struct.pack("!HHHH", source, destination, 8 + len(payload), 0)
    address = bytes([10, 0, 0, 1, 10, 0, 0, 2])
    ip = struct.pack("!BBHHHBBH", 0x45, 0, 28 + len(payload), 0, 0, 64, 17, 0) + address
    return bytes(12) + b"\x08\x00" + ip + header + payload


def pcap(path: pathlib.Path, frames: list[bytes]) -> pathlib.Path:
    # A bytearray grows in place; each `+=` on bytes would copy the whole file.
    data = bytearray(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262144, 1))
    for number, frame in enumerate(frames):
        data += struct.pack("<IIII", 1000 + number, 7, len(frame), len(frame)) + frame
    path.write_bytes(data)
    return path


def until(condition, what: str):
    """Waits for a true value."""
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError(f"not in time: {what}")


def frames_of(batches) -> int:
    return sum(len(batch) for batch in batches)


class Case(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.file = pcap(
            self.folder / "some.pcap", [udp(1000 + i % 2, 53 + i % 3) for i in range(600)]
        )


class Filters(Case):
    def test_a_filter_judges_frames_and_is_edited(self) -> None:
        dns, other = udp(4000, 53), udp(4000, 54)
        filter = fyke.Filter("udp port 53")
        self.assertTrue(filter.match(dns))
        self.assertFalse(filter.match(other))
        self.assertEqual(filter.match_all([dns, other] * 300), [True, False] * 300)
        number = filter.add("port 54")
        self.assertTrue(filter.match(other))
        self.assertEqual(filter.texts, {1: "udp port 53", number: "port 54"})
        added = filter.edit([("remove", number), ("add", "port 99")])
        self.assertEqual(added[0], None)
        self.assertFalse(filter.match(other))
        with self.assertRaises(fyke.FilterError):
            filter.edit([("add", "port 54"), ("add", "port nonsense at all")])
        self.assertFalse(filter.match(other), "a refused group has changed something")
        filter.set("")
        self.assertTrue(filter.match(other))
        self.assertEqual(fyke.Filter("ip", link="RAW").link, "RAW")
        self.assertTrue(fyke.Filter("greater 1000").match(dns, length=1500))

    def test_errors_have_a_position(self) -> None:
        with self.assertRaises(fyke.FilterError) as caught:
            fyke.Filter("udp and prot 53")
        self.assertIsInstance(caught.exception, ValueError)
        self.assertIn("^", str(caught.exception))
        self.assertEqual(caught.exception.span, (8, 12))
        for wrong in (
            lambda: fyke.Filter("ip", link="NONE SUCH"),
            lambda: fyke.Filter("ip").edit([("paint", 1)]),
        ):
            self.assertRaises(ValueError, wrong)
        self.assertRaises(TypeError, lambda: fyke.Filter("ip").match("text"))
        self.assertRaises(TypeError, lambda: fyke.LiveFilter(1.5))

    def test_explain(self) -> None:
        explained = fyke.explain("tcp port 80 or 443")
        self.assertGreaterEqual(explained["pass_count"], 1)
        self.assertTrue(explained["passes"][0]["instructions"])

    def test_threads_edit_and_judge_at_once(self) -> None:
        filter = fyke.Filter("udp port 53")
        frames = [udp(4000, 53)] * 1000
        wrong = []

        def edits() -> None:
            for _ in range(50):
                filter.remove(filter.add("port 77"))

        def judges() -> None:
            for _ in range(20):
                wrong.extend(one for one in filter.match_all(frames) if not one)

        threads = [threading.Thread(target=work) for work in (edits, judges, edits, judges)]
        [thread.start() for thread in threads]
        [thread.join(LIMIT) for thread in threads]
        self.assertEqual((wrong, list(filter.texts.values())), ([], ["udp port 53"]))


class Captures(Case):
    def test_a_file_in_batches(self) -> None:
        with fyke.capture(self.file, "udp dst port 53", batch_size=64) as capture:
            sizes = [len(batch) for batch in capture]
            stats = capture.stats()
        self.assertEqual((sum(sizes), max(sizes)), (200, 64))
        self.assertEqual((stats["seen"], stats["accepted"], stats["rejected"]), (600, 200, 400))
        self.assertEqual(stats["lost"], {})
        self.assertEqual(frames_of(fyke.capture(str(self.file), count=10)), 10)
        capture = fyke.capture(self.file, columns=["time", "length"])
        self.assertEqual(next(capture).columns, ["time", "length"])
        capture.close()
        capture.close()

    def test_a_closed_capture_counts_what_python_has_not_taken(self) -> None:
        capture = fyke.capture(self.file, batch_size=10)
        taken = len(next(capture))
        capture.close()
        stats = capture.stats()
        self.assertEqual(
            stats["seen"],
            stats["accepted"] + stats["rejected"] + stats["taken"] + sum(stats["lost"].values()),
        )
        self.assertLessEqual(taken, 10)
        self.assertEqual(list(capture), [])

    def test_sources_that_cannot_be_read(self) -> None:
        (self.folder / "text").write_text("this is no capture file\n" * 10)
        cut = self.folder / "cut.pcap"
        cut.write_bytes(self.file.read_bytes()[:-3])
        for source in (
            "none-such0",
            self.folder / "none.pcap",
            self.folder / "text",
            "serve:none",
        ):
            with self.assertRaises(fyke.CaptureError, msg=source) as caught:
                list(fyke.capture(source))
            self.assertIsInstance(caught.exception, OSError)
        taken = 0
        with self.assertRaises(fyke.CaptureError):
            for batch in fyke.capture(cut):
                taken += len(batch)
        self.assertEqual(taken, 599, "frames before the error come first")
        for arguments in ({"columns": ["colour"]}, {"batch_size": 0}, {"columns": []}):
            with self.assertRaises(ValueError, msg=arguments):
                fyke.capture(self.file, **arguments)
        self.assertRaises(fyke.FilterError, lambda: fyke.capture(self.file, "prot 53"))

    def test_a_graph(self) -> None:
        graph = fyke.Graph(
            f'(pcapin, "{self.file}") > {{f}}(bpf, "dst port 53") > [(arrow) | {{n}}(packetcount)]'
        )
        self.assertEqual(frames_of(graph), 200)
        nodes = {node["name"]: node for node in graph.stats()["nodes"]}
        self.assertEqual(nodes["n"]["arrived"], 200)
        self.assertRaises(fyke.GraphError, lambda: fyke.Graph("(pcapin, > (arrow)"))
        self.assertRaises(fyke.GraphError, lambda: graph.filter_of("none"))

    def test_a_child_after_a_fork_is_refused_and_can_open_another(self) -> None:
        capture = fyke.capture(self.file, batch_size=10)
        next(capture)
        child = os.fork()
        if child == 0:
            try:
                try:
                    next(capture)
                    os._exit(2)
                except fyke.EndedError:
                    os._exit(0 if frames_of(fyke.capture(self.file)) == 600 else 3)
            except BaseException as error:
                print(error, file=sys.stderr, flush=True)
                os._exit(4)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        self.assertEqual(10 + frames_of(capture), 600)


class Live(Case):
    def setUp(self) -> None:
        super().setUp()
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.addCleanup(self.socket.close)

    def send(self, count: int, port: int) -> None:
        for _ in range(count):
            self.socket.sendto(b"payload", ("127.0.0.1", port))

    def start(self, *words: str) -> subprocess.Popen:
        child = subprocess.Popen(
            [FYKE, *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )

        def end() -> None:
            child.kill()
            child.wait()
            child.stderr.close()

        self.addCleanup(end)
        return child

    def seen(self, capture, count: int):
        return until(
            lambda: capture.stats()["seen"] >= count, f"{count} frames: {capture.stats()}"
        )

    def test_an_interface_is_edited_from_outside(self) -> None:
        text = "inbound and udp dst port 5001"
        with fyke.capture("lo", text, name="python-test") as capture:
            self.send(50, 5001)
            self.seen(capture, 100)
            outside = fyke.LiveFilter("python-test")
            self.assertEqual(outside.texts, {1: text})
            self.assertIn(os.getpid(), [one["pid"] for one in fyke.running()])
            number = outside.add("inbound and udp dst port 5002")
            self.send(20, 5002)
            self.seen(capture, 140)
            said = subprocess.run(
                [FYKE, "ctl", "--pid", str(os.getpid()), "show"], capture_output=True, text=True
            )
            self.assertIn("udp dst port 5002", said.stdout, said.stderr)
            capture.stop()
            self.assertEqual(frames_of(capture), 70)
            self.assertEqual(capture.filter.counts, {1: 50, number: 20})
        self.assertRaises(fyke.Error, lambda: outside.add("udp"))
        self.assertRaises(fyke.CaptureError, lambda: fyke.LiveFilter("python-test"))

    def test_a_service_is_read_and_edited_and_its_death_is_an_error(self) -> None:
        service = self.start("serve", "-i", "lo")
        until(lambda: "serving lo" in service.stderr.readline(), "the service")
        capture = fyke.capture("serve:lo", "inbound and udp dst port 5001")
        self.send(30, 5001)
        taken = until(lambda: len(next(capture)), "a batch")
        while taken < 30:
            taken += len(next(capture))
        capture.filter.set("inbound and udp dst port 5002")
        self.send(10, 5001)
        self.send(10, 5002)
        while taken < 40:
            taken += len(next(capture))
        stats = capture.stats()
        self.assertEqual((taken, stats["lost"]), (40, {}))
        os.kill(service.pid, signal.SIGKILL)
        with self.assertRaises(fyke.CaptureError) as caught:
            until(lambda: next(capture) is None, "the error")
        self.assertIn("has ended", str(caught.exception))
        capture.close()

    def test_the_filter_of_another_program(self) -> None:
        dump = self.start(
            "dump", "-i", "lo", "-w", str(self.folder / "out.pcap"), "udp dst port 5001"
        )
        until(lambda: "listening on" in dump.stderr.readline(), "the capture")
        live = fyke.LiveFilter(dump.pid)
        before = live.epoch
        numbers = live.edit([("remove", 1), ("add", "udp dst port 5003")])
        self.assertEqual(live.texts, {numbers[1]: "udp dst port 5003"})
        self.assertGreater(live.epoch, before)
        self.assertRaises(fyke.FilterError, lambda: live.add("udp prot 7"))
        self.send(25, 5003)
        until(lambda: live.counts[numbers[1]] >= 25, "the counts")
        dump.kill()
        dump.wait()
        self.assertRaises(fyke.Error, lambda: live.add("udp"))
        self.assertRaises(fyke.CaptureError, lambda: fyke.LiveFilter(dump.pid))


if __name__ == "__main__":
    unittest.main(verbosity=2)
