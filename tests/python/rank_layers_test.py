"""Stores and loads by layers with one process a rank, on a real node: this process starts them, and the ranks' processes report computed
layers and wait for loaded ones. Ranks are killed and stopped in between."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import unittest

import python_support
from handover_test import metric
from node_support import PACE, PATIENCE, main, wait_until
from node_support import Node as RealNode

import sluice
from sluice.vllm import layout, node
from sluice.vllm.stages import Split
from vllm_native_node_test import BLOCKS, HEADS, LAYERS, STATES, Rank, told, value

KEYS = [f"block {i}".encode().ljust(32, b".") for i in range(4)]
FROM, TO = [3, 1, 7, 5], [20, 22, 21, 23]
TABLES = {"from": FROM, "to": TO}
ENDS = list(range(1, LAYERS + 1))


def pool(group, ranks, layers=(), addresses=None, memory_bytes=0):
    return sluice.Pool("full-0", sluice.POOL_ATTENTION, layers, memory_bytes=memory_bytes, device=addresses, part_count=HEADS,
                       first_parts=[layout.first_part(group, Split(HEADS, (group.layers,)), rank, ranks) for rank in range(ranks)])


class Process:
    """The program of a rank's process; each method is a command of the test."""

    def __init__(self, instance, directory, shm, rank, ranks):
        self.rank = Rank(rank, ranks, "HN" if ranks < 4 else "NH")
        self.names = self.rank.group.layers
        classes = layout.classes_of([self.rank.group])
        layers, addresses = layout.layers_of(self.rank.group, Split(HEADS, (self.names,)), self.rank.caches, BLOCKS)
        here = type("Where", (), {"instance": instance, "directory": directory, "shm": shm})
        self.node = node.Registered(told(here), "ranks")
        registered = self.node.register(
            classes, lambda *_: [pool(self.rank.group, ranks, layers, [addresses], len(self.rank.memory.raw))],
            {one.name: {"name": "played"} for one in classes}, BLOCKS, ranks, rank, 1)
        assert registered or wait_until(lambda: self.node.ready, 10, "it is registered"), self.node.said
        self.engine = self.node.engines[0]

    def cells(self, layer, table):
        for block, key in zip(TABLES[table], KEYS):
            for cell, at in self.rank.cells(block).items():
                if cell[0] == self.names[layer]:
                    yield at, value(cell, key)

    def compute(self, layer):
        for at, right in self.cells(layer, "from"):
            self.rank.memory[at:at + len(right)] = right

    def poison(self):
        self.rank.memory[:] = b"\xa5" * len(self.rank.memory)

    def ready(self, op, layers, timeout=None):
        self.engine.layers_ready(op, self.rank.rank, layers, timeout=timeout)

    def wait(self, op, layers, timeout):
        return self.engine.layers_wait(op, self.rank.rank, layers, timeout=timeout)

    def wait_as(self, rank, op):
        return self.engine.layers_wait(op, rank, 1, timeout=1)

    def wrong(self, layer):
        return sum(self.rank.memory[at:at + len(right)] != right for at, right in self.cells(layer, "to"))


def serve(arguments):
    process = Process(*arguments[:3], *map(int, arguments[3:]))
    print(json.dumps(["ready", None]), flush=True)
    for line in sys.stdin:
        name, *rest = json.loads(line)
        try:
            print(json.dumps(["ok", getattr(process, name)(*rest)]), flush=True)
        except sluice.SluiceError as error:
            print(json.dumps([sluice.Code(error.code).name, str(error)]), flush=True)


class Child:
    def __init__(self, real, rank, ranks):
        self.process = subprocess.Popen([sys.executable, __file__, "rank", real.instance, real.directory, real.shm, str(rank), str(ranks)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=python_support.environment())

    def tell(self, *command):
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()

    def hear(self):
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(f"a rank has ended: {self.process.poll()}")
        return json.loads(line)

    def ask(self, *command):
        self.tell(*command)
        code, answer = self.hear()
        if code != "ok":
            raise AssertionError(f"{command}: {code}: {answer}")
        return answer

    def ready(self, op, layers, timeout):
        """Reports layers of an op whose STORE may still be under way: for a second, an early rank is answered that there is no such op."""
        answers = []

        def noted():
            self.tell("ready", op.number, layers, timeout)
            answers.append(self.hear())
            return answers[-1][0] == "ok" or "no op" not in answers[-1][1]

        wait_until(noted, 10, "the coordinator has the store")
        assert answers[-1][0] == "ok", answers

    def end(self):
        self.process.kill()
        self.process.communicate()


class Team:
    """The ranks, and this process as their scheduler."""

    def __init__(self, real, ranks):
        self.real = real
        self.ranks = [Child(real, rank, ranks) for rank in range(ranks)]
        try:
            for one in self.ranks:
                assert one.hear()[0] == "ready"
            group = Rank(0, ranks, "HN").group
            classes = layout.classes_of([group])
            self.node = node.Node(told(real), "ranks")
            self.node.register(classes, lambda *_: [pool(group, ranks)], {one.name: {"name": "played"} for one in classes}, BLOCKS, ranks)
            wait_until(lambda: self.node.ready, 10, "the scheduler is registered")
            self.engine = self.node.engines[0]
        except BaseException:
            self.close()
            raise

    def close(self):
        for one in self.ranks:
            one.end()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
        self.node.close()

    def all(self, *command):
        for one in self.ranks:
            one.tell(*command)
        return [one.hear() for one in self.ranks]

    def each(self, *command):
        answers = self.all(*command)
        assert all(code == "ok" for code, _ in answers), answers
        return [answer for _, answer in answers]

    def store(self, timeout=10 * PATIENCE):
        return self.engine.store(hashes=KEYS, blocks=FROM, layer_ends=ENDS, timeout=timeout)

    def load(self, timeout=10 * PATIENCE):
        return self.engine.load(hashes=KEYS, blocks=TO, layer_ends=ENDS, timeout=timeout)

    def stored(self):
        op = self.store()
        for layer in range(LAYERS):
            self.each("compute", layer)
        op.layers_ready(LAYERS)
        op.wait()

    def copied(self):
        return metric(self.real, "coordinator", "layers_copied")


class Ranks(unittest.TestCase):
    def test_all_ranks_say_what_they_have_computed_and_wait_for_what_comes(self):
        for ranks in (1, 2, 4):
            with self.subTest(ranks=ranks), RealNode(ranks=ranks, memory="64MiB") as real, Team(real, ranks) as team:
                team.each("poison")  # so that reading too early fails
                op = team.store()
                for layer in range(LAYERS):
                    for one in team.ranks:
                        one.ask("compute", layer)
                        self.assertIsNone(op.poll())
                        if layer == 0:
                            one.ready(op, 1, 5 * PATIENCE)
                        else:
                            one.ask("ready", op.number, layer + 1, None)
                self.assertEqual(op.wait().stored_count, len(KEYS))
                load = team.load()
                for layer in range(LAYERS):
                    for layers, blocks in team.each("wait", load.number, layer + 1, 10 * PATIENCE):
                        self.assertGreater(layers, layer)
                        self.assertEqual(blocks, len(KEYS))
                    self.assertEqual(team.each("wrong", layer), [0] * ranks)
                self.assertEqual(load.wait().block_count, len(KEYS))
                self.assertEqual(team.each("wait", load.number, 1, 1)[0], [LAYERS, len(KEYS)])  # of an op that has ended

    def test_nothing_is_copied_that_one_rank_has_not_computed(self):
        with RealNode(ranks=2, memory="64MiB") as real, Team(real, 2) as team:
            op = team.store()
            team.ranks[0].ready(op, LAYERS, 5 * PATIENCE)
            team.ranks[1].ask("ready", op.number, 1, 5 * PATIENCE)
            wait_until(lambda: team.copied() == 1, 5, "the first layer is copied")
            time.sleep(0.1)
            self.assertEqual((team.copied(), op.poll()), (1, None))
            team.ranks[1].ask("ready", op.number, LAYERS)
            self.assertEqual(op.wait().stored_count, len(KEYS))

    def test_a_rank_that_dies_or_stops_costs_the_op_its_deadline(self):
        for number in (signal.SIGKILL, signal.SIGSTOP):
            with self.subTest(signal=number), RealNode(ranks=2, memory="64MiB") as real, Team(real, 2) as team:
                op = team.store(timeout=1.0 * PACE)
                for one in team.ranks:
                    one.ready(op, 1, 5 * PATIENCE)
                victim = team.ranks[1].process
                os.kill(victim.pid, number)
                team.ranks[0].ask("ready", op.number, LAYERS)
                with self.assertRaises(sluice.DeadlineError):
                    op.wait()
                op.wait_fenced(timeout=10 * PATIENCE)
                self.assertEqual(team.engine.look(KEYS), 0)
                if number == signal.SIGSTOP:
                    os.kill(victim.pid, signal.SIGCONT)
                    team.ranks[1].ask("ready", op.number, LAYERS)  # late: of an op that has ended
                    team.stored()
                    self.assertEqual(team.engine.look(KEYS), len(KEYS))

    def test_a_load_ends_for_all_ranks_when_one_has_died(self):
        with RealNode(ranks=2, memory="64MiB") as real, Team(real, 2) as team:
            team.stored()
            team.ranks[1].end()
            op = team.load(timeout=2.0 * PACE)
            team.ranks[0].tell("wait", op.number, LAYERS, 10 * PATIENCE)
            code, why = team.ranks[0].hear()
            self.assertNotEqual(code, "ok", why)
            with self.assertRaises(sluice.SluiceError):
                op.wait()

    def test_a_coordinator_that_dies_between_two_layers(self):
        with RealNode(ranks=2, memory="64MiB") as real, Team(real, 2) as team:
            def die():
                old = real.pid("coordinator")
                os.kill(old, signal.SIGKILL)
                real.wait_restarted("coordinator", old)

            op = team.store()
            for layer in range(LAYERS):
                team.each("compute", layer)
            for one in team.ranks:
                one.ready(op, LAYERS - 1, 5 * PATIENCE)
            die()
            op.layers_ready(LAYERS)  # the STORE reports them when it is sent again
            self.assertEqual(op.wait().stored_count, len(KEYS))
            swapper = real.pid("swapper.1")
            os.kill(swapper, signal.SIGSTOP)  # otherwise the load would have ended before
            load = team.load()
            for one in team.ranks:
                one.tell("wait", load.number, LAYERS, 10 * PATIENCE)
            die()
            with contextlib.suppress(ProcessLookupError):  # the supervisor ends an actor that is stopped for a second
                os.kill(swapper, signal.SIGCONT)
            self.assertEqual(load.wait().block_count, len(KEYS))  # also sends the LOAD again: libsluice has no thread of its own
            self.assertEqual([one.hear() for one in team.ranks], [["ok", [LAYERS, len(KEYS)]]] * 2)
            self.assertEqual([team.each("wrong", layer) for layer in range(LAYERS)], [[0, 0]] * LAYERS)

    def test_ranks_of_other_processes_and_ops_that_are_not_there(self):
        with RealNode(ranks=2, memory="64MiB") as real, Team(real, 2) as team:
            team.stored()
            load = team.load()
            self.assertEqual([code for code, _ in team.all("wait_as", 5, load.number)], ["INVALID"] * 2)
            self.assertEqual([code for code, _ in team.all("wait", load.number, LAYERS + 1, 1)], ["INVALID"] * 2)
            self.assertEqual([code for code, _ in team.all("wait", load.number + 77, 1, 5 * PATIENCE)], ["NOT_FOUND"] * 2)
            self.assertEqual([code for code, _ in team.all("ready", load.number, 1, 1)], ["INVALID"] * 2)  # no store
            with self.assertRaises(sluice.InvalidError):
                team.engine.load(hashes=KEYS, blocks=TO, layer_count=LAYERS)  # no rank is in this process: layer_ends is needed
            with self.assertRaises(sluice.InvalidError):
                team.engine.load(hashes=KEYS, blocks=TO, layer_ends=[])


if __name__ == "__main__":
    if sys.argv[1:2] == ["rank"]:
        serve(sys.argv[2:])
    else:
        main()
