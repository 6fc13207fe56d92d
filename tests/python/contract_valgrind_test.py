"""The store under valgrind: no read or write outside of its own memory, no leak. Skipped where valgrind is not installed."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from contract_support import HERE, MOONCAKE, main

TESTS = {
    "contract_reading_test.py": ["Into.test_get_into", "Into.test_batch_get_into", "Into.test_multi_buffers",
                                 "Into.test_multi_buffers_that_are_too_small", "Ranges.test_fragments",
                                 "Ranges.test_beyond_the_value_or_the_buffer", "Ranges.test_shapes_that_disagree",
                                 "Copies.test_buffer_protocol", "Copies.test_batch_get_buffer", "Copies.test_get_batch"],
    "contract_writing_test.py": ["Common.test_all_store_the_same_bytes", "Common.test_empty_keys",
                                 "Common.test_negative_sizes_and_addresses", "Values.test_anything_with_bytes",
                                 "Puts.test_put_parts_many", "MultiBuffers.test_pieces_of_different_sizes",
                                 "MultiBuffers.test_lengths_that_differ_for_one_key", "Upserts.test_batches"],
    "contract_sessions_test.py": ["Reading.test_layer_by_layer", "Reading.test_ranges_beyond_the_value",
                                  "Writing.test_layer_by_layer", "Writing.test_ranges_beyond_the_size", "Writing.test_revoke"],
    "contract_memory_test.py": ["Registration.test_register_and_unregister",
                                "Registration.test_parts_of_what_is_registered", "Allocator.test_alloc_and_free",
                                "Descriptors.test_of_memory", "Descriptors.test_batch"],
    "contract_life_test.py": ["Life.test_close_and_set_up_again", "Uninitialised.test_never_set_up", "Subclasses.test_derived",
                              "Subclasses.test_their_end", "Subclasses.test_with_other_bases"],
    "contract_keys_test.py": ["Kinds.test_written_and_read_by_every_call", "Kinds.test_batches_of_all_kinds", "Kinds.test_sessions",
                              "Kinds.test_descriptors", "Digests.test_names"],
}
# Stack frames of our code. Leaks of CPython and its libraries at exit do not count.
OURS = re.compile(r"(store\.abi3|mc::|py::|libsluice|mooncake_|store_|sl_|client_|index_)")


class Valgrind(unittest.TestCase):
    def run_under(self, script, tests):
        with tempfile.TemporaryDirectory() as folder:
            log = os.path.join(folder, "valgrind.%p")
            command = ["valgrind", "--tool=memcheck", "--leak-check=full", "--show-leak-kinds=definite", "--num-callers=30",
                       "--errors-for-leak-kinds=definite", f"--log-file={log}", "--child-silent-after-fork=yes",
                       sys.executable, os.path.join(HERE, script), *tests]
            # A lease of half a second may be over between two calls.
            slow = {"PYTHONMALLOC": "malloc", "SLUICE_TEST_SLOWDOWN": "20", "SLUICE_TEST_LEASE_MS": "5000"}
            done = subprocess.run(command, env={**os.environ, **slow},
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
            reports = []
            for name in os.listdir(folder):
                with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as text:
                    blocks = re.split(r"\n==\d+== \n", text.read())
                # the interpreter's own end of the stack is beyond the frame that belongs to the module
                reports += [one for one in blocks if re.search(r"(at|by) 0x", one) and self.is_ours(one)]
        self.assertEqual(done.returncode, 0, done.stdout[-6000:])
        self.assertEqual(reports, [], "\n\n".join(reports[:10]))

    @staticmethod
    def is_ours(report):
        """Whether one of the frames is of the module or the library (by its file), not only called from the interpreter."""
        return any(OURS.search(frame) for frame in re.findall(r"(?:at|by) 0x[0-9A-F]+: (.*)", report))


def case(script, tests):
    return lambda self: self.run_under(script, tests)


for one_script, its_tests in TESTS.items():
    setattr(Valgrind, "test_" + one_script.removesuffix("_test.py"), case(one_script, its_tests))

if __name__ == "__main__":
    if not shutil.which("valgrind") or MOONCAKE or "LD_PRELOAD" in os.environ:
        print("skipped: no valgrind, or a sanitizer instead")
        sys.exit(77)
    import python_support

    os.environ["SLUICE_TEST_PACKAGE"] = python_support.PACKAGE
    main()
