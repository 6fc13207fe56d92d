"""Values that replace others: readers see the old one or the new one, whichever process dies."""

import os
import shutil
import signal
import unittest

from node_support import Node, lives, main, wait_until
from contributions_support import PROBE, Probe

BOUND = 20  # seconds, times the patience: only ends hangs
ROUNDS = 60


def size(number):
    """Size of the value with this number: small ones, and some that take a while to copy."""
    return 4096 + number % 7 * 300_000 // 8 * 8


@unittest.skipUnless(os.path.exists(PROBE), "contributions_probe was not built")
class Replace(unittest.TestCase):
    def start(self, **settings):
        node = Node(ranks=1, memory="64MiB", **settings)
        node.__enter__()
        self.addCleanup(node.__exit__)
        return node

    def replaced(self, writer, number):
        answer = writer.ask("replace", "k", number, size(number))
        self.assertEqual(answer[0], "SL_OK", answer)

    def check(self, readers):
        for reader in readers:
            answer = reader.ask("stop")  # ends its loop; it is also a command, which is refused
            self.assertEqual(answer[0], "SL_OK", answer)
            self.assertGreater(int(answer[1]), 0)
            self.assertEqual(reader.hear()[0], "SL_ERR_UNSUPPORTED")

    def reading(self, node, count):
        readers = [Probe(self, node) for _ in range(count)]
        for reader in readers:
            reader.tell("read", "k")
        return readers

    def kill_registrar(self, node):
        old = node.pid("registrar")
        os.kill(old, signal.SIGKILL)
        node.wait_restarted("registrar", old, BOUND)

    def test_readers_see_old_or_new_with_the_registrar_killed(self):
        node = self.start()
        writer = Probe(self, node)
        self.assertEqual(writer.code("put", "k", 1, size(1)), "SL_OK")
        readers = self.reading(node, 2)
        for number in range(2, ROUNDS):
            self.replaced(writer, number)
            self.assertEqual(writer.ask("get", "k")[:2], ["SL_OK", str(number)])
            if number % 15 == 0:
                writer.tell("replace", "k", number, size(number))  # during this
                self.kill_registrar(node)
                self.assertEqual(writer.hear()[0], "SL_OK")
        self.check(readers)

    def test_two_writers_come_to_an_end(self):
        node = self.start()
        writers = [Probe(self, node) for _ in range(3)]
        for number in range(1, ROUNDS):
            for writer in writers:
                writer.tell("replace", "k", number, 2 << 20)
            for writer in writers:
                self.assertEqual(writer.hear()[0], "SL_OK")
            self.assertEqual(writers[0].ask("get", "k")[:2], ["SL_OK", str(number)])

    def test_a_writer_that_dies_changes_nothing(self):
        node = self.start()
        keeper = Probe(self, node)
        self.replaced(keeper, 1)
        for number in range(2, 12):
            writer = Probe(self, node)
            writer.tell("replace", "k", number, 8 << 20)
            writer.kill()  # before, during or after it
            answer = keeper.ask("get", "k")
            self.assertEqual(answer[0], "SL_OK", answer)
            self.assertLessEqual(int(answer[1]), number)
        wait_until(lambda: keeper.code("replace", "k", 99, 4096) == "SL_OK", BOUND, "the key can be written")
        self.assertEqual(keeper.ask("get", "k")[:2], ["SL_OK", "99"])

    def test_with_a_disk_the_old_value_never_comes_back(self):
        node = self.start(disk="256MiB")
        for round_number in range(4):
            base = round_number * 10 + 1
            writer = Probe(self, node)
            self.replaced(writer, base)
            node.ctl("flush")
            for number in range(base + 1, base + 6):
                self.replaced(writer, number)
            flushed = round_number % 2 == 1
            if flushed:
                node.ctl("flush")
            self.kill_all(node, with_memory=round_number >= 2)
            node.start()
            node.wait_ready(BOUND)
            reader = Probe(self, node)
            answer = reader.ask("get", "k")
            if round_number < 2 or flushed:
                self.assertEqual(answer[:2], ["SL_OK", str(base + 5)], f"round {round_number}")
            else:  # it was only in memory, which is lost
                self.assertIn(answer[0], ("SL_OK", "SL_ERR_NOT_FOUND"))
                self.assertTrue(answer[0] != "SL_OK" or answer[1] == str(base + 5), answer)
            reader.end()
            writer.end()

    def kill_all(self, node, with_memory):
        """Kills all processes, as in a power cut; with_memory: memory is lost as well."""
        with open(node.directory + "/run/supervisor.pid", encoding="utf-8") as text:
            supervisor = int(text.read().split()[0])
        actors = [row[0] for row in node.processes().values() if row[0] != 0]
        os.kill(supervisor, signal.SIGKILL)
        for pid in actors:
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not any(lives(pid) for pid in actors), BOUND, "all are dead")
        if with_memory:
            shutil.rmtree(node.shm, ignore_errors=True)

    def test_readers_see_old_or_new_with_a_disk_that_dies(self):
        node = self.start(disk="256MiB")
        writer = Probe(self, node)
        self.replaced(writer, 1)
        readers = self.reading(node, 2)
        for number in range(2, ROUNDS):
            self.replaced(writer, number)
            if number % 12 == 0:
                victim = "tierer.0" if number % 24 == 0 else "registrar"
                old = node.pid(victim)
                os.kill(old, signal.SIGKILL)
                node.wait_restarted(victim, old, BOUND)
                node.wait_ready(BOUND)
        self.check(readers)


if __name__ == "__main__":
    main()
