"""The table of pools with real processes: owners, waiters and mappers that are killed or stopped, and the registrar as
well; and a hybrid engine of four pools."""

import json
import os
import select
import signal
import subprocess
import time
import unittest

from node_support import BIN, PATIENCE, Node, main, wait_until

PROBE = os.path.join(BIN, "..", "tests", "pool_probe")
LONG = 10000 * PATIENCE  # ms: only ends hangs
POOLS = ("attention", "mamba_state", "mamba_conv", "indexer")


class Probe:
    """A client that executes commands on pools."""

    def __init__(self, test, node):
        self.test = test
        self.process = subprocess.Popen([PROBE, node.instance, node.directory + "/run", node.shm], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)
        test.addCleanup(self.process.communicate)
        test.addCleanup(self.process.kill)
        test.assertEqual(self.answer(), "ok")

    def tell(self, *words):
        self.process.stdin.write((" ".join(str(word) for word in words) + "\n").encode())

    def answer(self, seconds=30):
        ready = select.select([self.process.stdout], [], [], seconds * PATIENCE)[0]
        self.test.assertTrue(ready, "the probe does not answer")
        return self.process.stdout.readline().decode().strip()

    def does(self, *words):
        self.tell(*words)
        return self.answer()

    def fine(self, *words):
        self.test.assertEqual(self.does(*words), "ok")

    def silent(self, seconds=0.3):
        return not select.select([self.process.stdout], [], [], seconds)[0]

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        self.process.kill()
        self.process.wait()


def pools_mapped(pid):
    """Mappings of a process that are memory of pools: memfds, except those of the lanes between processes."""
    try:
        with open(f"/proc/{pid}/maps", encoding="utf-8") as lines:
            return [line for line in lines if "memfd:" in line and "sluice-lane" not in line]
    except OSError:
        return []


@unittest.skipUnless(os.path.exists(PROBE), "pool_probe was not built")
class Pools(unittest.TestCase):
    def setUp(self):
        self.node = Node(ranks=1)
        self.node.__enter__()
        self.addCleanup(self.node.__exit__)

    def rows(self):
        return json.loads(self.node.ctl("pools", "--json").stdout)["pools"]

    def row(self):
        rows = self.rows()
        return rows[0] if rows else None

    def restart(self, actor):
        old = self.node.pid(actor)
        os.kill(old, signal.SIGKILL)
        self.node.wait_restarted(actor, old)
        self.node.wait_ready()

    def says(self, probe, text, *words):
        """A wait that ends at its deadline returns the reason; if the answer itself is late, it is asked again."""
        wait_until(lambda: text in probe.does(*words), 5, f"{words[0]} says '{text}'")

    def test_a_waiter_hears_of_ready_of_death_and_of_its_deadline(self):
        owner, waiter = Probe(self, self.node), Probe(self, self.node)
        self.says(waiter, "no process makes it", "await", 0, 200)
        owner.fine("create", 0, LONG)
        self.assertIn("SL_ERR_BUSY", waiter.does("create", 0, LONG))
        self.says(waiter, f"process {owner.process.pid}", "await", 0, 200)
        waiter.tell("await", 0, LONG)
        self.assertTrue(waiter.silent())
        since = time.monotonic()
        owner.kill()
        self.assertIn("SL_ERR_PEER_DIED", waiter.answer())
        print(f"the owner's death was noticed after {(time.monotonic() - since) * 1000:.0f} ms")
        second = Probe(self, self.node)
        waiter.tell("await", 0, LONG)
        second.fine("create", 0, LONG)
        second.fine("poke", 0, 77)
        self.assertTrue(waiter.silent())
        second.fine("publish", 0)
        self.assertEqual(waiter.answer(), "ok")
        self.assertEqual(waiter.does("peek", 0), "ok 77")
        row = self.row()
        self.assertEqual((row["state"], row["owner_pid"], row["mapper_count"]), ("ready", second.process.pid, 1))
        self.assertIn("attention", self.node.ctl("pools").stdout.decode())

    def test_waiting_outlives_the_registrar(self):
        owner, waiter = Probe(self, self.node), Probe(self, self.node)
        owner.fine("create", 0, LONG)
        waiter.tell("await", 0, LONG)
        self.restart("registrar")
        self.assertEqual(self.row()["state"], "allocating")
        owner.fine("publish", 0)
        self.assertEqual(waiter.answer(), "ok")
        self.restart("registrar")
        self.assertEqual(self.row()["mapper_count"], 1)
        waiter.tell("over", 0, LONG)
        self.assertTrue(waiter.silent())
        owner.kill()
        self.assertEqual(waiter.answer(), "ok")
        self.assertEqual(self.row()["state"], "revoking")
        waiter.fine("release", 0)
        self.assertEqual(self.rows(), [])

    def test_an_owner_that_dies_with_the_registrar_leaves_nothing(self):
        owner = Probe(self, self.node)
        owner.fine("create", 0, LONG)
        registrar = self.node.pid("registrar")
        os.kill(registrar, signal.SIGSTOP)
        owner.kill()
        os.kill(registrar, signal.SIGKILL)
        self.node.wait_restarted("registrar", registrar)
        self.node.wait_ready()
        self.assertEqual(self.rows(), [])

    def test_a_revoke_waits_for_a_stopped_client_until_it_dies(self):
        owner, mapper = Probe(self, self.node), Probe(self, self.node)
        owner.fine("create", 0, LONG)
        owner.fine("publish", 0)
        mapper.fine("await", 0, LONG)
        mapper.signal(signal.SIGSTOP)
        self.says(owner, f"process {mapper.process.pid}", "revoke", 0, 500)
        self.assertEqual(self.row()["state"], "revoking")
        owner.tell("revoke", 0, LONG)
        self.assertTrue(owner.silent())
        mapper.kill()
        self.assertEqual(owner.answer(), "ok")
        self.assertEqual(self.rows(), [])

    def test_what_is_not_allowed_is_refused_by_name(self):
        owner, other = Probe(self, self.node), Probe(self, self.node)
        owner.fine("create", 0, LONG)
        self.assertIn("SL_ERR_EXISTS", owner.does("await", 0, LONG))  # this client has it
        owner.fine("publish", 0)
        self.assertIn("SL_ERR_EXISTS", other.does("create", 0, LONG))
        self.assertIn("SL_ERR_EXISTS", other.does("acquire", 0, LONG))
        other.fine("await", 0, LONG)
        self.assertIn("SL_ERR_INVALID", other.does("publish", 0))  # the owner's to do
        self.assertIn("SL_ERR_PERMISSION", other.does("revoke", 0, LONG))
        self.assertIn("SL_ERR_TIMEOUT", other.does("over", 0, 100))  # it is still in use
        other.tell("over", 0, LONG)
        owner.tell("revoke", 0, LONG)
        self.assertEqual(other.answer(), "ok")
        self.assertTrue(owner.silent())
        other.fine("release", 0)
        self.assertEqual(owner.answer(), "ok")
        self.assertIn("SL_ERR_STALE", owner.does("publish", 0))
        self.assertIn("SL_ERR_STALE", owner.does("register"))
        owner.fine("release", 0)
        other.fine("acquire", 0, LONG)  # and now Sluice makes it
        self.assertEqual(self.row()["owner"], "swapper.0")

    def engine_of(self, how):
        probe = Probe(self, self.node)
        for number in range(len(POOLS)):
            probe.fine(how, number, LONG)
            if how == "create":
                probe.fine("publish", number)
        probe.fine("register")
        probe.fine("fill", 1, 6)
        self.assertEqual(probe.does("store", 1, 6), "ok 6")
        return probe

    def test_a_dead_engines_mappings_are_dropped_within_a_second(self):
        probe = self.engine_of("create")
        swapper = self.node.pid("swapper.0")
        self.assertEqual(len(pools_mapped(swapper)), len(POOLS))
        since = time.monotonic()
        probe.kill()
        wait_until(lambda: not pools_mapped(swapper), 1, "the swapper has unmapped the engine")
        print(f"a killed engine's pools were unmapped after {(time.monotonic() - since) * 1000:.0f} ms")
        wait_until(lambda: not self.rows(), 1, "no pool is left")
        self.assertEqual(self.node.pid("swapper.0"), swapper)

    def test_a_stopped_swapper_is_killed_by_a_revoke(self):
        probe = self.engine_of("create")
        swapper = self.node.pid("swapper.0")
        os.kill(swapper, signal.SIGSTOP)
        probe.tell("revoke", 0, LONG)
        self.assertEqual(probe.answer(), "ok")
        self.node.wait_restarted("swapper.0", swapper)
        self.assertEqual(sorted(row["pool"] for row in self.rows()), sorted(POOLS[1:]))
        self.assertNotIn("ok", probe.does("store", 2, 1))  # its registration ended

    def test_what_sluice_made_outlives_the_swapper_and_ends_with_its_last_client(self):
        probe = self.engine_of("acquire")
        swapper = self.node.pid("swapper.0")
        self.assertTrue(all(row["by_sluice"] and row["owner"] == "swapper.0" for row in self.rows()))
        self.restart("swapper.0")
        probe.fine("fill", 2, 6)
        self.assertEqual(probe.does("store", 2, 6), "ok 6")
        other = Probe(self, self.node)
        other.fine("acquire", 0, LONG)  # the same memory, from the engine's descriptor
        probe.fine("poke", 0, 99)
        self.assertEqual(other.does("peek", 0), "ok 99")
        self.assertNotEqual(self.node.pid("swapper.0"), swapper)
        probe.kill()
        wait_until(lambda: len(self.rows()) == 1, 1, "memory that only the engine had is released")
        self.assertEqual(self.row()["state"], "ready")
        other.fine("release", 0)
        wait_until(lambda: not self.rows(), 1, "no pool is left")
        self.assertEqual(pools_mapped(self.node.pid("swapper.0")), [])

    def test_memory_that_sluice_made_is_freed(self):
        probe = Probe(self, self.node)
        probe.fine("acquire", 0, LONG)
        swapper = self.node.pid("swapper.0")

        def made():
            links = [os.readlink(f"/proc/{swapper}/fd/{fd}") for fd in os.listdir(f"/proc/{swapper}/fd")]
            return [link for link in links if "sluice-pool" in link]

        self.assertEqual(len(made()), 1)
        probe.fine("revoke", 0, LONG)
        self.assertEqual(made(), [])

    def test_a_hybrid_engine_stores_and_loads_all_of_a_block_or_none(self):
        probe = self.engine_of("acquire")
        self.assertEqual(probe.does("load", 1, 6), "ok 6")
        self.assertEqual(probe.does("check", 1, 6), "ok 0")
        self.assertEqual(len(self.keys()), 6 * len(POOLS))
        for seed, pool in enumerate(POOLS, 10):
            probe.fine("fill", seed, 6)
            known, blocks = self.keys(), []
            for count in range(1, 7):  # one after the other, so that each block's keys are known
                self.assertEqual(probe.does("store", seed, count), "ok 1")
                blocks.append(self.keys() - known)
                known = self.keys()
            self.assertEqual({key.rsplit("/", 1)[1] for key in blocks[3]}, set(POOLS))
            self.node.ctl("rm", next(key for key in blocks[3] if key.endswith("/" + pool)))
            self.assertEqual(probe.does("load", seed, 6), "ok 3")  # the prefix ends where one pool's part is missing
            self.assertEqual(probe.does("check", seed, 3), "ok 0")
            self.assertEqual(probe.does("store", seed, 6), "ok 1")  # the whole block, not a part of it
            self.assertEqual(probe.does("load", seed, 6), "ok 6")

    def keys(self):
        return {key for key in self.node.ctl("ls").stdout.decode().split() if key.count("/") == 3}


if __name__ == "__main__":
    main()
