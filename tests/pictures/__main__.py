"""Makes the pictures in README: `sluicectl top` in a terminal, and the dashboard's figures, both of a real node while it serves a replay.

    python3 tests/pictures [--trace FILE] [--memory SIZE] [--disk SIZE] [--seconds N]     some three minutes; needs tmux and prometheus

The node's screen is what tmux shows, with its colours (deploy/monitoring/top.svg). The figures are a Prometheus' answers, with
deploy/monitoring's configuration, to the dashboard's own queries (deploy/monitoring/dashboard.svg); Grafana draws them differently.
Without --trace the workload is `sluicectl workload`, so that every reader can repeat it.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "node"), os.path.join(HERE, "..", "support")]
import monitoring_test  # noqa: E402
import panels  # noqa: E402
import terminal  # noqa: E402
import top_test  # noqa: E402
from node_support import CTL, Node, free_port, wait_until  # noqa: E402

SHIPPED = monitoring_test.SHIPPED
STEP_S = 2
RATE_INTERVAL = "10s"
# Panels of the dashboard that a node with one engine and one disk fills.
TITLES = ("Hits of loads, and the ceiling", "Loads by tier", "Bytes", "Time of loads and stores", "Memory for values", "Age of what is evicted",
          "Disk traffic", "Processor time")
REQUESTS_PER_S = 40


def series_of(port, query, begin, end):
    """[(labels, [(unix time, value)])] of a query over a span of time."""
    words = urllib.parse.urlencode({"query": monitoring_test.asked(query, RATE_INTERVAL), "start": begin, "end": end, "step": STEP_S})
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/query_range?{words}", timeout=30) as answer:
        rows = json.load(answer)["data"]["result"]
    return [(row["metric"], [(at, float(value)) for at, value in row["values"]]) for row in rows]


def legend(form, labels):
    """As Grafana fills in legendFormat; the node's address is left out, since there is one node."""
    for name, value in labels.items():
        form = form.replace("{{" + name + "}}", "" if name == "instance" else value)
    return " ".join(form.split())


def panels_of(port, begin, end):
    with open(SHIPPED + "/dashboard.json", encoding="utf-8") as file:
        board = {panel["title"]: panel for panel in json.load(file)["panels"]}
    for title in TITLES:
        panel = board[title]
        lines = [(legend(target["legendFormat"], labels), points) for target in panel["targets"]
                 for labels, points in series_of(port, target["expr"], begin, end)]
        if not lines:
            sys.exit(f"tests/pictures: the panel '{title}' shows nothing")
        yield title, panel["fieldConfig"]["defaults"]["unit"], lines


def trace_of(options, folder):
    """The trace's path, and the divisor of its times that makes it take about options.seconds."""
    if options.trace:
        with open(options.trace, encoding="utf-8") as lines:
            last = [json.loads(line)["timestamp"] for line in lines][-1]
        return options.trace, max(1, last / 1000 / options.seconds)
    path = folder + "/trace.jsonl"
    with open(path, "w", encoding="utf-8") as file:
        subprocess.run([CTL, "workload", "--rate", str(REQUESTS_PER_S), "--requests", str(REQUESTS_PER_S * options.seconds), "--sessions", "256"],
                       stdout=file, check=True)
    return path, 1


def taken(options, folder, node, port):
    """(screen with its colours, panels) of a replay."""
    trace, speed = trace_of(options, folder)
    top = top_test.Terminal(folder, " ".join([CTL, "top", *node.where]))
    replay = None
    try:
        server, prometheus = monitoring_test.prometheus_start(folder, port, f"{STEP_S}s")
        try:
            begin = time.time()
            replay = node.replay_start(trace, "--ranks", "2", "--block-bytes", "4096", "--op-timeout", "30s", "--speed", f"{speed:.3f}")
            wait_until(lambda: replay.poll() is not None or time.time() > begin + options.seconds - 10, options.seconds, "the replay is near its end")
            if replay.poll() is not None:
                sys.exit("tests/pictures: the replay ended before its time:\n" + replay.communicate()[0])
            screen = top.coloured()
            said = replay.communicate(timeout=600)[0]
            print(said)
            if replay.returncode != 0:
                sys.exit("tests/pictures: the replay failed")
            return screen, list(panels_of(prometheus, begin + 10, time.time()))
        finally:
            server.terminate()
            server.wait()
    finally:
        if replay and replay.poll() is None:
            replay.kill()
        top.close()


def write(name, text):
    path = os.path.join(SHIPPED, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    print(f"{path}: {len(text.encode())} bytes")


def main():
    parser = argparse.ArgumentParser(prog="tests/pictures", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", help="instead of a generated workload")
    parser.add_argument("--memory", default="32MiB")
    parser.add_argument("--disk", default="256MiB")
    parser.add_argument("--seconds", type=int, default=150, help="how long the replay takes")
    options = parser.parse_args()
    if not shutil.which("tmux") or not monitoring_test.PROMETHEUS:
        print("skipped: no tmux or no prometheus (deploy/install --test)")
        return 77
    port = free_port()
    node = Node(ranks=2, memory=options.memory, disk=options.disk, settings=["--metrics-listen", f"127.0.0.1:{port}"])
    node.instance = node.where[1] = "default"  # in directories of its own
    with tempfile.TemporaryDirectory(prefix="sl-pictures-") as folder, node:
        screen, found = taken(options, folder, node, port)
    write("top.svg", terminal.drawn(screen, "sluicectl top"))
    write("dashboard.svg", panels.drawn(found, f"A node with {options.memory} of memory and {options.disk} of disk while it serves a replay"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
