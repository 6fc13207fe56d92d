"""The files of deploy/monitoring work: a Prometheus with its configuration scrapes a node, its rules are valid, and every query of the
dashboard is valid and has data where the node counts any."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import urllib.error
import urllib.parse
import urllib.request

from node_support import BIN, PATIENCE, ROOT, Node, free_port, main, wait_until, workload

sys.path.insert(0, os.path.join(ROOT, "tests", "structure"))
import dashboard  # noqa: E402

SHIPPED = os.path.join(ROOT, "deploy", "monitoring")
PROMTOOL, PROMETHEUS = shutil.which("promtool"), shutil.which("prometheus")


def asked(query, rate_interval="1m"):
    """A query of the dashboard with its variables filled in."""
    return query.replace("$instance", ".*").replace("$__rate_interval", rate_interval)


def prometheus_start(folder, node_port, interval):
    """(process, port) of a Prometheus with the configuration of deploy/monitoring, except for the node's port and the scrape interval."""
    for name in ("prometheus.yml", "sluice.rules.yml"):
        with open(f"{SHIPPED}/{name}", encoding="utf-8") as file:
            text = file.read().replace("127.0.0.1:9400", f"127.0.0.1:{node_port}").replace("interval: 15s", f"interval: {interval}")
        with open(f"{folder}/{name}", "w", encoding="utf-8") as file:
            file.write(text)
    port = free_port()
    with open(folder + "/log", "wb") as log:
        server = subprocess.Popen([PROMETHEUS, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
                                   f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log)
    return server, port


@unittest.skipUnless(PROMTOOL, "promtool is not installed (Debian's prometheus; deploy/install --test)")
class Rules(unittest.TestCase):
    def promtool(self, *words):
        done = subprocess.run([PROMTOOL, *words], cwd=SHIPPED, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
                              timeout=60 * PATIENCE)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def test_configuration_and_rules_are_sound_and_fire_when_they_should(self):
        self.assertIn("SUCCESS", self.promtool("check", "config", "prometheus.yml"))
        self.assertIn("20 rules found", self.promtool("check", "rules", "sluice.rules.yml"))
        self.assertIn("SUCCESS", self.promtool("test", "rules", "sluice.rules.test.yml"))

    def test_every_alert_has_a_test(self):
        with open(SHIPPED + "/sluice.rules.yml", encoding="utf-8") as rules, open(SHIPPED + "/sluice.rules.test.yml", encoding="utf-8") as tests:
            alerts, text = re.findall(r"- alert: (\w+)", rules.read()), tests.read()
        self.assertGreater(len(alerts), 14)
        self.assertEqual([alert for alert in alerts if alert not in text], [])


@unittest.skipUnless(PROMETHEUS, "prometheus is not installed (Debian's prometheus; deploy/install --test)")
class Scraped(unittest.TestCase):
    def start(self, folder, port):
        server, self.port = prometheus_start(folder, port, "1s")
        self.addCleanup(server.wait)
        self.addCleanup(server.terminate)

    def query(self, text):
        """Its series; raises ValueError with the reason if the query is invalid."""
        url = f"http://127.0.0.1:{self.port}/api/v1/query?" + urllib.parse.urlencode({"query": text})
        try:
            with urllib.request.urlopen(url, timeout=30 * PATIENCE) as answer:
                return json.load(answer)["data"]["result"]
        except urllib.error.HTTPError as refused:
            with refused:
                raise ValueError(refused.read().decode()) from None

    def value(self, text):
        return [float(row["value"][1]) for row in self.query(text)]

    def there(self, text):
        try:
            return self.value(text)
        except (urllib.error.URLError, ConnectionError, ValueError):  # it is starting
            return []

    def test_the_dashboard_and_the_rates_of_the_rules_show_what_the_node_counts(self):
        port = free_port()
        settings = ["--metrics-listen", f"127.0.0.1:{port}"]
        with tempfile.TemporaryDirectory() as folder, Node(ranks=1, memory="4MiB", disk="8MiB", settings=settings) as node:
            self.start(folder, port)
            workload(folder + "/trace.jsonl", 400, 3)
            replay = [folder + "/trace.jsonl", "--block-bytes", "4096", "--ranks", "1", "--op-timeout", "30s"]
            wait_until(lambda: self.there('up{job="sluice"}') == [1.0], 30, "Prometheus has scraped the node")
            for _ in range(2):
                node.ctl("replay", *replay, timeout=100 * PATIENCE)
                node.ctl("put", "k", "-", stdin=b"v" * 5000)
                for key in ("k", "k", "no"):
                    node.ctl("get", key, check=False)
            gets = 'sum(sluice_get_keys_total{tier!="none"}) / sum(sluice_get_keys_total)'
            wait_until(lambda: self.there("sum(sluice_get_keys_total)") == [6.0], 30, "Prometheus has scraped what was read")
            wait_until(lambda: self.there("sluice:load_hits:ratio5m"), 30, "the rules' rates exist")
            self.assertAlmostEqual(self.value(gets)[0], 2 / 3)
            self.assertEqual(self.value('sluice_get_bytes_total{tier="memory"}'), [20000.0])
            self.assertEqual(self.value("count(sluice_actor_up == 1)"), [float(len(node.processes()))])
            hits, ceiling = self.value("sluice:load_hits:ratio5m"), self.value("sluice:load_ceiling:ratio5m")
            self.assertTrue(0 < hits[0] <= ceiling[0] < 1, (hits, ceiling))
            told = {line.split()[2] for line in node.ctl("metrics").stdout.decode().splitlines() if line.startswith("# TYPE")}
            families = {row["metric"]["__name__"] for row in self.query('count by (__name__) ({__name__=~"sluice_.*"})')}
            with open(os.path.join(ROOT, dashboard.PATH), encoding="utf-8") as file:
                board = json.load(file)
            seen = 0
            for title, query, overview in dashboard.queries(board):
                with self.subTest(panel=title, query=query):
                    series = self.query(asked(query))
                    used = set(re.findall(r"sluice_\w+", query))
                    if not overview and used <= families | {name + "_bucket" for name in told}:
                        seen += 1
                        self.assertTrue(series, "the node has this family, but the panel is empty")
                    if overview and not any(name.startswith(dashboard.NOT_ALONE) for name in used):
                        self.assertTrue(series, "a panel of the overview shows nothing")
            self.assertGreater(seen, 200)
            self.assertEqual(self.query('ALERTS{alertstate="firing"}'), [])
            firing = json.load(urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v1/rules", timeout=30 * PATIENCE))["data"]["groups"]
            self.assertEqual([rule["lastError"] for group in firing for rule in group["rules"] if rule.get("lastError")], [])


if __name__ == "__main__":
    main()
