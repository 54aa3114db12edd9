"""Batches in pyarrow and pandas: types, values, no copies, lifetimes. Run by tests/package.rs."""

import gc
import pathlib
import tempfile
import unittest

import pandas
import pyarrow

import fyke
from alone import pcap, udp


class Arrow(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        frames = [udp(1000 + i % 2, 53 + i % 3, b"payload %d" % i) for i in range(60)]
        self.file = pcap(
            pathlib.Path(folder.name) / "some.pcap", frames + [b"\xff" * 14 + bytes(40)]
        )

    def test_every_column(self) -> None:
        table = pyarrow.table(fyke.capture(self.file, "udp dst port 53", batch_size=8))
        self.assertEqual(table.num_rows, 20)
        row = table.slice(1, 1).to_pylist()[0]
        self.assertEqual(
            row["time"].value if hasattr(row["time"], "value") else row["time"].timestamp(),
            row_time(row),
        )
        expected = {
            "length": 51,
            "captured": 51,
            "link": "EN10MB",
            "interface": 0,
            "vlan": None,
            "source": "10.0.0.1",
            "destination": "10.0.0.2",
            "protocol": 17,
            "source_port": 1001,
            "destination_port": 53,
            "flags": None,
            "filter": 1,
            "payload": b"payload 3",
        }
        self.assertEqual({name: row[name] for name in expected}, expected)
        self.assertIsNotNone(row["pass"])
        self.assertIsNotNone(row["epoch"])
        self.assertEqual(table.schema.field("time").type, pyarrow.timestamp("ns", "UTC"))
        table.validate(full=True)

    def test_frames_without_headers_are_null(self) -> None:
        table = pyarrow.table(fyke.capture(self.file))
        last = table.slice(table.num_rows - 1).to_pylist()[0]
        self.assertEqual(
            [last[one] for one in ("source", "protocol", "source_port")], [None, None, None]
        )

    def test_a_batch_outlives_its_capture(self) -> None:
        with fyke.capture(self.file, columns=["frame", "payload"]) as capture:
            batch = next(capture)
        array = pyarrow.record_batch(batch)
        again = pyarrow.record_batch(batch)
        self.assertEqual(array["frame"].buffers()[2].address, again["frame"].buffers()[2].address)
        del batch, capture, again
        gc.collect()
        self.assertEqual(array["frame"][0].as_py(), udp(1000, 53, b"payload 0"))

    def test_a_stream_outlives_its_capture(self) -> None:
        reader = pyarrow.RecordBatchReader.from_stream(fyke.capture(self.file, batch_size=8))
        gc.collect()
        self.assertEqual(reader.read_all().num_rows, 61)

    def test_a_closed_capture_ends_its_stream(self) -> None:
        capture = fyke.capture(self.file, batch_size=8)
        reader = pyarrow.RecordBatchReader.from_stream(capture)
        capture.close()
        self.assertEqual(reader.read_all().num_rows, 0)
        stats = capture.stats()
        self.assertEqual(stats["lost"].get("writer", 0), stats["seen"])

    def test_pandas(self) -> None:
        frame = pyarrow.table(fyke.capture(self.file, "udp")).to_pandas()
        self.assertIsInstance(frame, pandas.DataFrame)
        self.assertEqual(dict(frame.groupby("destination_port").size()), {53: 20, 54: 20, 55: 20})
        self.assertEqual(str(frame.time.iloc[2]), "1970-01-01 00:16:42.000007+00:00")
        if hasattr(pandas.DataFrame, "from_arrow"):
            self.assertEqual(len(pandas.DataFrame.from_arrow(fyke.capture(self.file, "udp"))), 60)


def row_time(row) -> int:
    return 1003 * 10**9 + 7000 if hasattr(row["time"], "value") else 1003.000007


if __name__ == "__main__":
    unittest.main(verbosity=2)
