"""Values that are only on disk, read by threads of one handle."""

import hashlib
import threading
import unittest

from python_support import client, sluice
from node_support import PATIENCE, Node, main

MIB = 1 << 20
SIZE = MIB // 2
COUNT = 300  # 150 MiB: six times the memory
KEYS = [f"cold-{number:04}" for number in range(COUNT)]


def value(number):
    return hashlib.sha256(str(number).encode()).digest() * (SIZE // 32)


class ColdReads(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.node = Node(ranks=1, memory="24MiB", disk="1GiB")
        cls.node.__enter__()
        cls.addClassCleanup(cls.node.__exit__)
        with client(cls.node) as writer:
            for number, key in enumerate(KEYS):
                writer.put(key, value(number), timeout=PATIENCE)
            writer.flush(timeout=PATIENCE)

    def test_threads_on_one_handle_read_what_is_on_disk(self):
        for count in (1, 2, 4, 8):
            numbers, problems, lock = iter(range(COUNT // 2)), [], threading.Lock()

            def run(reader):
                while True:
                    with lock:
                        number = next(numbers, None)
                    if number is None:
                        return
                    try:
                        if reader.get(KEYS[number], timeout=PATIENCE) != value(number):
                            problems.append(f"value {number} has other bytes")
                    except sluice.SluiceError as failure:
                        problems.append(f"value {number}: {failure}")

            with self.subTest(threads=count), client(self.node) as reader:
                threads = [threading.Thread(target=run, args=(reader,)) for _ in range(count)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                self.assertEqual(problems, [])


if __name__ == "__main__":
    main()
