"""Frames per second of a loop over the batches of a file: rate.py [--frames N] [--columns NAME,…] [FILE]."""

import argparse
import pathlib
import tempfile
import time

import fyke
from alone import pcap, udp


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("file", nargs="?")
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument(
        "--columns", default="time,length,source,destination,source_port,destination_port"
    )
    parser.add_argument("--filter", default="udp dst port 53")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = arguments.file
        if file is None:
            some = [udp(1000 + i, 53) for i in range(1000)]
            file = pcap(
                pathlib.Path(folder) / "some.pcap",
                (some * (arguments.frames // 1000 + 1))[: arguments.frames],
            )
        begin = time.perf_counter()
        work = time.process_time()
        with fyke.capture(
            file, arguments.filter, columns=arguments.columns.split(",")
        ) as capture:
            frames = sum(len(batch) for batch in capture)
            seen = capture.stats()["seen"]
        seconds, work = time.perf_counter() - begin, time.process_time() - work
    if arguments.file is None and (frames, seen) != (arguments.frames, arguments.frames):
        raise SystemExit(f"{frames} of {seen} frames")
    rates = f"{seen / seconds / 1e6:.2f} million/s, {seen / work / 1e6:.2f} million"
    print(f"{frames} of {seen} frames: {rates} per processor second")


if __name__ == "__main__":
    main()
