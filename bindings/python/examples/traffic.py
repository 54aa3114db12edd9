"""Looks at a capture cell by cell, and plots it: traffic.py FILE PLOT.svg

Editors that know cells (`# %%`), such as Jupyter's and VS Code's, run it step by step. It needs pandas, pyarrow and
matplotlib.
"""

# %% The capture: only the columns that the plot needs, and only frames of IP.
import pathlib
import sys

import matplotlib
import pyarrow

import fyke

file, plot = map(pathlib.Path, sys.argv[1:3])
columns = ["time", "length", "source", "destination", "protocol"]
capture = fyke.capture(file, "ip or ip6", columns=columns)
frames = pyarrow.table(capture).to_pandas()
stats = capture.stats()
print(f"{stats['seen']} frames: {stats['accepted']} of IP, {stats['rejected']} others")

# %% Bytes by pair of addresses, the largest first.
pairs = frames.groupby(["source", "destination"], observed=True)["length"].agg(["count", "sum"])
pairs = pairs.sort_values("sum", ascending=False)
print(pairs.head(10).to_string())

# %% Bytes in each of 50 equal parts of the time, by protocol.
names = {1: "ICMP", 6: "TCP", 17: "UDP", 58: "ICMPv6"}
seconds = (frames["time"] - frames["time"].min()).dt.total_seconds()
width = max(float(seconds.max()) / 50, 1e-6)
frames["part"] = (seconds / width).astype(int)
frames["name"] = frames["protocol"].map(names).fillna("others")
table = frames.pivot_table(
    index="part", columns="name", values="length", aggfunc="sum", fill_value=0
)
table = table.reindex(range(51), fill_value=0)  # also the parts without a frame
table.index = table.index * width

# %% The plot.
matplotlib.use("svg")
matplotlib.rcParams["svg.fonttype"] = "none"  # text stays text
axes = table.plot.area(linewidth=0, figsize=(8, 4))
axes.set(title=file.name, xlabel="seconds", ylabel=f"bytes in {width:.3g} s")
axes.legend(title="")
axes.figure.savefig(plot, bbox_inches="tight")
