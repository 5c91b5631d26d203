"""What every peer in Python shares: the rows that it has, asked for by name, timed, told as JSON.

A row is `name -> {variant: prepare}`, names as `monoglot bench --list` has them; `prepare()` makes the inputs
and returns the call that is timed. A peer runs alone,

    python torch_rows.py --threads 1 --filter softmax --seconds 0.5

or serves `compare.py`: with `--serve` it prints its rows, a line each of name and variant, and an empty line;
then, for each line "name TAB variant TAB seconds" that it reads, it prints a record.
"""
import argparse
import json
import os
import statistics
import sys
import time


def options():
    """The command line; keeps this process to as many cores as it says, before any library counts them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--filter", default="")
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--serve", action="store_true")
    args = parser.parse_args()
    allowed = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, allowed[: args.threads])
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(args.threads)
    return args


def median_of(call, seconds):
    """The median time of a call, after calls that are not counted; at least one is."""
    begin = time.perf_counter()
    call()
    first = time.perf_counter() - begin
    # What takes long has warmed up by then.
    while first < seconds and time.perf_counter() - begin < seconds / 4:
        call()
    times = []
    end = time.perf_counter() + seconds
    while not times or time.perf_counter() < end:
        at = time.perf_counter()
        call()
        times.append(time.perf_counter() - at)
    return statistics.median(times)


class Peer:
    """A peer's rows, of which the inputs of one are kept: the next time it is asked for comes soon."""

    def __init__(self, name, rows, threads):
        self.name, self.rows, self.threads = name, rows, threads
        self.kept = (None, None)

    def record(self, row, variant, seconds):
        if self.kept[0] != (row, variant):
            self.kept = (None, None)
            self.kept = ((row, variant), self.rows[row][variant]())
        median = median_of(self.kept[1], seconds)
        peer = f"{self.name} {variant}".strip()
        return {"name": row, "threads": self.threads, "median_s": median, "peer": peer}

    def all(self):
        return [(row, variant) for row, variants in self.rows.items() for variant in variants]


def main(name, rows, args):
    """Answer whoever asked."""
    peer = Peer(name, rows, args.threads)
    if not args.serve:
        for row, variant in peer.all():
            if args.filter in row:
                print(json.dumps(peer.record(row, variant, args.seconds)), flush=True)
        return
    for row, variant in peer.all():
        print(f"{row}\t{variant}")
    print(flush=True)
    for line in sys.stdin:
        row, variant, seconds = line.rstrip("\n").split("\t")
        print(json.dumps(peer.record(row, variant, float(seconds))), flush=True)
