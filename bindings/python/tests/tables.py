"""Captures in polars and DuckDB, without a detour. Run by tests/package.rs."""

import pathlib
import tempfile
import unittest

import duckdb
import polars
import pyarrow

import fyke
from alone import pcap, udp

PORTS = [(53, 2000), (54, 2000), (55, 2000)]


class Tables(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        frames = [udp(1000 + i % 2, 53 + i % 3, b"payload %d" % i) for i in range(6000)]
        self.file = pcap(pathlib.Path(folder.name) / "some.pcap", frames)

    def test_polars(self) -> None:
        frame = polars.DataFrame(fyke.capture(self.file, "udp", batch_size=512))
        ports = frame.group_by("destination_port").len().sort("destination_port")
        self.assertEqual(ports.rows(), PORTS)
        self.assertEqual(frame["payload"][3], b"payload 3")
        self.assertEqual(frame["time"].dtype, polars.Datetime("ns", "UTC"))
        self.assertEqual(frame["source"].cast(polars.String).unique().to_list(), ["10.0.0.1"])

    def test_polars_reads_a_batch(self) -> None:
        with fyke.capture(self.file, "udp", batch_size=512) as capture:
            self.assertEqual(polars.DataFrame(next(capture)).height, 512)

    def test_duckdb(self) -> None:
        capture = fyke.capture(self.file, "udp", batch_size=512)
        query = "SELECT destination_port, count(*) FROM capture GROUP BY ALL ORDER BY 1"
        self.assertEqual(duckdb.sql(query).fetchall(), PORTS)
        self.assertEqual(capture.stats()["accepted"], 6000)

    def test_duckdb_reads_a_stream_of_pyarrow(self) -> None:
        stream = pyarrow.RecordBatchReader.from_stream(fyke.capture(self.file, "udp port 54"))
        query = "SELECT count(*), min(source), max(payload) FROM stream"
        expected = [(2000, "10.0.0.1", b"payload 997")]
        self.assertEqual(duckdb.sql(query).fetchall(), expected)
        self.assertIsNotNone(stream)


if __name__ == "__main__":
    unittest.main(verbosity=2)
