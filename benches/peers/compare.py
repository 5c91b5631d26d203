#!/usr/bin/env python3
"""Monoglot beside its peers, a row at a time and in turn: in each round `monoglot bench` times the row, then every
peer that has it. Prints the median times, and how many times as long as the fastest peer Monoglot takes: the
median of the rounds' ratios, in each of which both met the same machine. With --json a line for each program:
name, threads, median_s, peer, and for Monoglot ratio, the fastest peer and the share of the limit.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
# Freed memory is kept, so that no peer pays page faults for a fresh output.
KEPT = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 36)}


class Peer:
    """A program that serves rows (`timing.py`)."""

    def __init__(self, command):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(command, env=os.environ | KEPT, **pipes)
        self.rows = {}
        while line := self.line().rstrip("\n"):
            row, variant = line.split("\t")
            self.rows.setdefault(row, []).append(variant)

    def line(self):
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.process.args} ended with {self.process.wait()}")
        return line

    def records(self, row, seconds):
        for variant in self.rows.get(row, []):
            print(row, variant, seconds, sep="\t", file=self.process.stdin, flush=True)
            yield json.loads(self.line())


def monoglot(args, row):
    command = [args.monoglot, "bench", "--exact", "--filter", row, "--json"]
    command += ["--threads", str(args.threads), "--seconds", str(args.seconds)]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    return json.loads(lines[-1]) | {"peer": "monoglot"}


def compared(args, peers, row):
    """The records of a row: Monoglot's, then the peers', the fastest first."""
    rounds = []
    for _ in range(args.rounds):
        theirs = [r for p in peers for r in p.records(row, args.seconds)]
        rounds.append([monoglot(args, row)] + theirs)
    records = []
    for same in zip(*rounds):
        median = statistics.median(r["median_s"] for r in same)
        record = {k: same[0][k] for k in ("name", "threads", "peer")} | {"median_s": median}
        records.append(record)
    ours, theirs = records[0], sorted(records[1:], key=lambda r: r["median_s"])
    if shares := [r[0]["share"] for r in rounds if r[0]["share"]]:
        ours["share"] = statistics.median(shares)
    if theirs:
        ratio = [r[0]["median_s"] / min(t["median_s"] for t in r[1:]) for r in rounds]
        ours |= {"ratio": statistics.median(ratio), "fastest": theirs[0]["peer"]}
    return [ours] + theirs


def line(ours, theirs):
    """A row for people."""
    share = f"{100 * ours['share']:.0f}%" if "share" in ours else ""
    text = f"{ours['name']:<29}{1e3 * ours['median_s']:>10.3f} {share:>5}"
    if theirs:
        text += f" {ours['ratio']:>6.2f}"
    times = (f"{1e3 * t['median_s']:.3f} {t['peer']}" for t in theirs)
    return f"{text}  {', '.join(times)}"


def options():
    parser = argparse.ArgumentParser(description=__doc__)
    home = os.environ.get("MONOGLOT_PEERS") or pathlib.Path.home() / ".cache" / "monoglot-peers"
    built = HERE.parent.parent / "target" / "release" / "monoglot"
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--filter", default="", help="only rows whose name contains this")
    parser.add_argument("--exact", action="store_true", help="only the row of this very name")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.2, help="for each program and round")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--monoglot", default=str(built), help="the binary")
    parser.add_argument("--peers", type=pathlib.Path, default=pathlib.Path(home), help="what setup.sh made")
    return parser.parse_args()


def main():
    args = options()
    # All are kept to the same cores.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: args.threads])
    python = str(args.peers / "python" / "bin" / "python")
    serve = ["--serve", "--threads", str(args.threads)]
    commands = [[python, str(HERE / f"{peer}_rows.py"), *serve] for peer in ("torch", "numpy")]
    commands.append([str(args.peers / "products" / "release" / "peer-products"), str(args.threads)])
    peers = [Peer(c) for c in commands if pathlib.Path(c[0]).exists()]
    if not peers:
        raise SystemExit(f"there are no peers in {args.peers}: setup.sh makes them")
    listed = subprocess.run([args.monoglot, "bench", "--list"], check=True, capture_output=True, text=True)
    listed = listed.stdout.split()
    if unknown := sorted({row for p in peers for row in p.rows} - set(listed)):
        raise SystemExit(f"monoglot bench has no rows {unknown}")
    asked = (lambda name: name == args.filter) if args.exact else (lambda name: args.filter in name)
    rows = [row for row in listed if asked(row) and any(row in p.rows for p in peers)]
    if not args.json:
        print(f"{args.threads} threads; ms, share of the limit, times the fastest peer; peers, ms")
    for row in rows:
        ours, *theirs = compared(args, peers, row)
        if args.json:
            print("\n".join(map(json.dumps, [ours, *theirs])), flush=True)
        else:
            print(line(ours, theirs), flush=True)


main()
