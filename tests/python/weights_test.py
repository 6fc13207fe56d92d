"""sluice.weights: one model at two paths is one model, two models at one path are two, for all kinds of files. No node is needed."""

import json
import os
import re
import shutil
import stat
import struct
import subprocess
import tempfile
import threading
import time
import types
import unittest
from unittest import mock

from python_support import interpreter, weights_wait  # and the package that was built
from node_support import ROOT, main, wait_until

from sluice import weights

MIB = 1 << 20


def safetensors(path, content, names=("a", "b")):
    """A file of tensors, all of the same size."""
    size = len(content) // len(names)
    header = json.dumps({name: {"dtype": "U8", "shape": [size], "data_offsets": [at * size, (at + 1) * size]}
                         for at, name in enumerate(names)}).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header + content)


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


class Model(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.directory)
        patched = mock.patch.dict(os.environ, {"XDG_CACHE_HOME": os.path.join(self.directory, "cache")})
        patched.start()
        self.addCleanup(patched.stop)
        weights_wait(self)
        self.content = bytearray(os.urandom(6 * MIB))
        self.path = self.model("model")

    def model(self, name):
        path = os.path.join(self.directory, name)
        os.mkdir(path)
        safetensors(f"{path}/model-00001-of-00002.safetensors", self.content)
        safetensors(f"{path}/model-00002-of-00002.safetensors", self.content[:1000])
        write(f"{path}/model.safetensors.index.json", json.dumps({"weight_map": {"a": "model-00001-of-00002.safetensors"}}))
        write(f"{path}/config.json", json.dumps({"hidden_size": 8, "rope_theta": 1e4, "_name_or_path": name, "transformers_version": name}))
        write(f"{path}/tokenizer.json", name)
        return path

    def identity(self, path=None, **given):
        name, revision = weights.identity(path or self.path, "main", **given)
        self.assertTrue(name.startswith("weights:"), name)
        self.assertEqual(revision, "", "a revision says nothing of files that lie here")
        return name

    # ---- the same ----

    def test_one_model_at_two_paths_is_one(self):
        want, other = self.identity(), self.model("elsewhere")
        os.utime(f"{other}/model-00001-of-00002.safetensors", (1, 1))
        self.assertEqual(self.identity(other), want)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.directory)
        self.assertEqual(self.identity("elsewhere"), want)
        self.assertEqual(self.identity("./elsewhere/"), want)

    def test_a_snapshot_of_links_is_the_model_that_it_links_to(self):
        want, snapshot = self.identity(), os.path.join(self.directory, "snapshot")
        os.mkdir(snapshot)
        for at, name in enumerate(os.listdir(self.path)):
            shutil.copy(f"{self.path}/{name}", f"{self.directory}/blob{at}")
            os.symlink(f"../blob{at}", f"{snapshot}/{name}")
        self.assertEqual(self.identity(snapshot), want)

    def test_a_name_of_a_hub_whose_files_are_here_is_that_model(self):
        asked = []

        def snapshot_download(name, **given):
            asked.append((name, given))
            if name != "hub/model":
                raise FileNotFoundError("not in the cache")
            return self.path

        with mock.patch.dict("sys.modules", huggingface_hub=types.SimpleNamespace(snapshot_download=snapshot_download)):
            self.assertEqual(weights.identity("hub/model", "v2", hub_directory="/hub"), (self.identity(), ""))
            self.assertEqual(asked, [("hub/model", {"revision": "v2", "cache_dir": "/hub", "local_files_only": True})])
            self.assertEqual(weights.identity("hub/other", "v2"), ("hub/other", "v2"))

    def hub(self):
        """A cache of huggingface_hub's; returns the path of the revisions of hub/model."""
        cache = os.path.join(self.directory, "hub")
        os.makedirs(f"{cache}/models--hub--model/snapshots")
        patched = mock.patch.dict("sys.modules", huggingface_hub=types.SimpleNamespace(constants=types.SimpleNamespace(HF_HUB_CACHE=cache),
                                                                                       snapshot_download=mock.Mock(side_effect=OSError("none"))))
        patched.start()
        self.addCleanup(patched.stop)
        return f"{cache}/models--hub--model/snapshots"

    def test_without_a_revision_all_that_the_cache_has_are_one_model_or_there_is_no_name(self):
        revisions, want = self.hub(), self.identity()
        held = weights.Held(False, weights.revisions_of)
        self.assertEqual(weights.identity_by_name("hub/model"), "hub/model", "no files")
        self.assertEqual(weights.identity_by_name(self.path), want)
        for one in ("v1", "v2"):
            shutil.copytree(self.path, f"{revisions}/{one}")
            self.assertEqual((weights.identity_by_name("hub/model"), held.name(one, "hub/model")), (want, want))
        write(f"{revisions}/v2/README.md", "another text")
        os.mkdir(f"{revisions}/v3")
        write(f"{revisions}/v3/config.json", "{}")  # no weights: it was never loaded
        self.assertEqual(weights.identity_by_name("hub/model"), want)
        write(f"{revisions}/v2/config.json", "{}")
        with self.assertRaisesRegex(ValueError, "hub/model: .* 2 revisions .* setting `model`"):
            weights.identity_by_name("hub/model")
        with self.assertLogs("sluice.weights", "WARNING"):
            self.assertIsNone(held.name("v3", "hub/model"))

    def test_revisions_come_and_go_under_a_process(self):
        revisions, want = self.hub(), self.identity()
        held = weights.Held(False, weights.revisions_of)
        self.assertEqual(held.name(1, "hub/model"), "hub/model", "no files")
        shutil.copytree(self.path, f"{revisions}/v1")
        self.assertEqual(held.name(1, "hub/model"), want, "the first download")
        os.mkdir(f"{revisions}/v2")
        shutil.copy(f"{self.path}/model-00001-of-00002.safetensors", f"{revisions}/v2")
        with self.assertLogs("sluice.weights", "WARNING") as logged:
            self.assertEqual([held.name(1, "hub/model") for _ in range(3)], [None] * 3, "half of one")
        self.assertEqual(len(logged.output), 1)
        shutil.copytree(self.path, f"{revisions}/v2", dirs_exist_ok=True,
                        ignore=lambda *_: ["model-00001-of-00002.safetensors"])
        self.assertEqual(held.name(1, "hub/model"), want, "another commit of the same weights")
        shutil.rmtree(f"{revisions}/v1")
        self.assertEqual(held.name(1, "hub/model"), want)
        shutil.copytree(self.path, f"{revisions}/v3")
        write(f"{revisions}/v3/config.json", "{}")
        with self.assertLogs("sluice.weights", "WARNING") as logged:
            self.assertIsNone(held.name(1, "hub/model"))
            shutil.rmtree(f"{revisions}/v3")
            self.assertIsNone(held.name(1, "hub/model"), "an engine may have loaded it")
        self.assertIn("2 revisions", logged.output[0])
        self.assertIn("its files changed", logged.output[1])
        self.assertEqual(held.name(2, "hub/model"), want)
        write(f"{revisions}/v2/config.json", "{}")
        with self.assertLogs("sluice.weights", "WARNING"):
            self.assertIsNone(held.name(2, "hub/model"))

    def test_a_file_that_comes_to_a_model_makes_another_one(self):
        held = weights.Held(False, weights.revisions_of)
        self.assertEqual(held.name(1, self.path), self.identity())
        write(f"{self.path}/modeling_own.py", "")
        with self.assertLogs("sluice.weights", "WARNING") as logged:
            self.assertIsNone(held.name(1, self.path))
        self.assertIn("its files changed", logged.output[0])

    def test_what_is_not_computed_with_is_left_out(self):
        want = self.identity()
        for name in ("tokenizer.json", "vocab.json", "generation_config.json", "README.md", ".gitattributes", "optimizer.pt", "rng_state.pth",
                     "trainer_state.json"):
            write(f"{self.path}/{name}", "other")
            self.assertEqual(self.identity(), want, name)

    # ---- another one ----

    def change(self, name, at, content):
        """Changes bytes in place: neither size nor modification time change."""
        path = f"{self.path}/{name}"
        before = os.stat(path)
        with open(path, "r+b") as file:
            file.seek(at, os.SEEK_END if at < 0 else os.SEEK_SET)
            file.write(content)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        self.assertEqual(os.stat(path).st_size, before.st_size)

    def test_other_bytes_of_the_same_size_are_another_model(self):
        known, name = [self.identity()], "model-00001-of-00002.safetensors"
        size = os.stat(f"{self.path}/{name}").st_size
        pieces = [at * (size - weights.PIECE_BYTES) // (weights.PIECES - 1) for at in range(weights.PIECES)]
        for at in (-1, pieces[0] + 4096, pieces[1], pieces[31] + 65535, pieces[63] - 1 + 65536):
            with open(f"{self.path}/{name}", "rb") as file:
                file.seek(at, os.SEEK_END if at < 0 else os.SEEK_SET)
                self.change(name, at, bytes([file.read(1)[0] ^ 0xa5]))
            known.append(self.identity())
        self.change("model-00002-of-00002.safetensors", 300, b"small files are read whole")
        known.append(self.identity())
        self.assertEqual(len(set(known)), len(known))

    def test_every_byte_counts_where_that_is_wanted(self):
        name = "model-00001-of-00002.safetensors"
        size = os.stat(f"{self.path}/{name}").st_size
        between = weights.PIECE_BYTES + 5  # after the first piece
        second = (size - weights.PIECE_BYTES) // (weights.PIECES - 1)
        self.assertLess(between, second)
        before = self.identity(), self.identity(whole=True)
        self.assertNotEqual(*before)
        self.change(name, between, bytes([self.content[0] ^ 1, 2, 3]))
        self.assertEqual(self.identity(), before[0], "a place that is not looked at")
        self.assertNotEqual(self.identity(whole=True), before[1])

    def test_all_that_gives_weights_a_meaning_counts(self):
        known = [self.identity()]

        def differs(what):
            known.append(self.identity())
            self.assertEqual(len(set(known)), len(known), what)

        safetensors(f"{self.path}/model-00002-of-00002.safetensors", self.content[:1000], ("a", "c"))
        differs("the name of a tensor")
        safetensors(f"{self.path}/model-00002-of-00002.safetensors", self.content[:1000], ("abcd",))
        differs("shapes")
        write(f"{self.path}/model.safetensors.index.json", json.dumps({"weight_map": {"b": "model-00001-of-00002.safetensors"}}))
        differs("the index file")
        write(f"{self.path}/config.json", json.dumps({"hidden_size": 8, "rope_theta": 1e5}))
        differs("the configuration")
        for name in ("quantize_config.json", "preprocessor_config.json", "modeling_own.py", "pytorch_model.bin", "consolidated.00.pth"):
            write(f"{self.path}/{name}", "{}")
            differs(name)
        os.rename(f"{self.path}/model-00001-of-00002.safetensors", f"{self.path}/model-00003-of-00003.safetensors")
        differs("the name of a shard")
        os.mkdir(f"{self.path}/below")
        safetensors(f"{self.path}/below/x.safetensors", self.content[:100])
        want = self.identity()
        self.assertEqual(want, known[-1], "no index names it")
        write(f"{self.path}/model.safetensors.index.json", json.dumps({"weight_map": {"b": "below/x.safetensors"}}))
        differs("an index that names a directory")
        safetensors(f"{self.path}/below/x.safetensors", self.content[100:200])
        differs("a shard below the directory")

    def test_a_model_in_one_file(self):
        first = f"{self.directory}/m-00001-of-00002.gguf"
        for path in (first, f"{self.directory}/m-00002-of-00002.gguf", f"{self.directory}/single.gguf"):
            write(path, "weights")
        known = [self.identity(first), self.identity(f"{self.directory}/single.gguf")]
        write(f"{self.directory}/m-00002-of-00002.gguf", "changed")
        known.append(self.identity(first))
        self.assertEqual(self.identity(f"{self.directory}/single.gguf"), known[1], "a neighbour is another model")
        write(f"{self.directory}/mmproj-x.gguf", "pictures")
        known.append(self.identity(first))
        self.assertEqual(len(set(known)), 4)

    # ---- none ----

    def test_where_there_are_no_weights_the_name_stays(self):
        empty = f"{self.directory}/empty"
        os.mkdir(empty)
        write(f"{empty}/config.json", "{}")
        for name, given in ((empty, {}), ("no/such", {}), ("s3://bucket/model", {}), ("no/such:Q4", {}), (self.path, {"load_format": "dummy"}),
                            (self.path, {"load_format": "tensorizer"})):
            self.assertEqual(weights.identity(name, "v1", **given), (name, "v1"))
        self.assertEqual(weights.identity("no/such"), ("no/such", ""))

    def test_files_that_cannot_be_read_are_named(self):
        os.symlink("loop.safetensors", f"{self.path}/loop.safetensors")
        with self.assertRaisesRegex(ValueError, "loop.safetensors: .*setting `model`"):
            self.identity()
        os.unlink(f"{self.path}/loop.safetensors")
        real = os.open

        def refuse(path, flags, *more, **given):
            if str(path).endswith("00002.safetensors"):
                raise PermissionError(13, "Permission denied", path)
            return real(path, flags, *more, **given)

        with mock.patch.object(weights.os, "open", refuse), self.assertRaisesRegex(ValueError, "00002.safetensors: Permission denied"):
            self.identity()

    def test_files_without_an_end_are_not_opened(self):
        want = self.identity()
        os.mkfifo(f"{self.path}/pipe.safetensors")
        self.assertEqual(self.identity(), want)

    def test_a_file_that_changes_while_it_is_read(self):
        real, changes = weights.digest_bytes, [1]

        def reading(number, path, size, whole):
            made = real(number, path, size, whole)
            if changes and path.endswith("00001-of-00002.safetensors"):
                changes.pop()
                with open(path, "ab") as file:
                    file.write(b"more")
            return made

        with mock.patch.object(weights, "digest_bytes", reading):
            once = self.identity()
            self.assertEqual(once, self.identity(), "it was read again")
            changes.extend([1] * 100)
            with self.assertRaisesRegex(ValueError, "00001-of-00002.safetensors: changes while it is read"):
                self.identity()

    def test_a_thousand_files_and_a_bound(self):
        for at in range(1000):
            write(f"{self.path}/shard{at}.bin", str(at))
        before = self.identity()
        write(f"{self.path}/shard999.bin", "other")
        self.assertNotEqual(self.identity(), before)
        with mock.patch.object(weights, "FILES_MAX", 1000), self.assertRaisesRegex(ValueError, "1004 files of weights, 1000 at most"):
            self.identity()

    # ---- what is kept ----

    @property
    def kept(self):
        return f"{self.directory}/cache/sluice/weights.json"

    def later(self):
        """The files are old enough for their digests to be kept."""
        patched = mock.patch.object(weights.time, "time_ns", return_value=time.time_ns() + 3600 * 10**9)
        patched.start()
        self.addCleanup(patched.stop)

    def test_a_digest_is_made_once(self):
        self.later()
        want = self.identity()
        self.assertEqual((stat.S_IMODE(os.stat(self.kept).st_mode), stat.S_IMODE(os.stat(os.path.dirname(self.kept)).st_mode)), (0o600, 0o700))
        with mock.patch.object(weights, "digest_bytes", side_effect=AssertionError("read again")):
            self.assertEqual(self.identity(), want)
        self.assertNotEqual(self.identity(whole=True), want)
        self.change("model-00001-of-00002.safetensors", -1, b"\0" if self.content[-1] else b"\1")
        self.assertNotEqual(self.identity(), want)

    def test_a_digest_of_a_file_that_changed_a_moment_ago_is_not_kept(self):
        self.identity()
        self.assertFalse(os.path.exists(self.kept))

    def test_images_with_the_same_inodes_and_times_are_told_apart(self):
        self.later()
        with mock.patch.object(weights, "state_of", lambda about: (1, 1, about.st_size, 0, 0)):
            before = self.identity()
            self.change("model-00001-of-00002.safetensors", -1, b"\0" if self.content[-1] else b"\1")
            self.assertNotEqual(self.identity(), before)

    def test_what_others_may_have_written_is_not_believed(self):
        self.later()
        want = self.identity()
        with open(self.kept, encoding="utf-8") as file:
            wrong = json.dumps(dict.fromkeys(json.load(file), "0" * 64))
        for spoil in (lambda: os.chmod(self.kept, 0o666), lambda: write(self.kept, "{"), lambda: write(self.kept, "[]"),
                      lambda: write(self.kept, '{"a": 1}'), lambda: (os.unlink(self.kept), os.symlink("nothing", self.kept)),
                      lambda: (os.unlink(self.kept), os.mkdir(self.kept))):
            if os.path.isfile(self.kept):
                write(self.kept, wrong)
            spoil()
            self.assertEqual(self.identity(), want)

    def test_it_is_bounded(self):
        self.later()
        with mock.patch.object(weights, "CACHE_FILES_MAX", 2):
            self.identity()
        with open(self.kept, encoding="utf-8") as file:
            self.assertEqual(len(json.load(file)), 2)

    def test_a_user_without_a_home_keeps_nothing(self):
        self.later()
        os.environ.pop("XDG_CACHE_HOME")
        with mock.patch.object(weights.os.path, "expanduser", lambda path: path), mock.patch.object(weights.os, "makedirs") as made:
            self.identity()
        made.assert_not_called()

    # ---- a process that keeps running ----

    def test_a_long_index_is_not_read_with_each_batch_of_keys(self):
        os.mkdir(f"{self.path}/below")
        safetensors(f"{self.path}/below/one.safetensors", self.content[:1000])
        index = f"{self.path}/model.safetensors.index.json"
        write(index, json.dumps({"weight_map": {"a": "below/one.safetensors"}}))
        held, want = weights.Held(False), self.identity()
        with mock.patch.object(weights.json, "load", side_effect=AssertionError("read again")):
            self.assertEqual([held.name(1, self.path) for _ in range(3)], [want] * 3)
        write(index, json.dumps({"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "below/none.safetensors"}}))
        self.assertNotIn("below/one.safetensors", weights.files_of(self.path))

    def test_files_that_change_under_a_process_have_no_name(self):
        held, want = weights.Held(False), self.identity()
        self.assertEqual(held.name(1, self.path), want)
        os.rename(self.path, self.path + " elsewhere")
        self.assertEqual(held.name(1, self.path), None, "files that went away")
        os.rename(self.path + " elsewhere", self.path)
        self.assertEqual(held.name(2, "no/such"), "no/such")
        self.assertEqual(held.name(3, self.path), want)
        self.change("model-00002-of-00002.safetensors", 300, b"other")
        with self.assertLogs("sluice.weights", "WARNING") as logged:
            self.assertEqual([held.name(3, self.path) for _ in range(3)], [None] * 3)
        self.assertEqual(len(logged.output), 1)
        self.assertIn("its files changed", logged.output[0])
        self.assertEqual(held.name(4, self.path), self.identity(), "it was loaded again")

    # ---- the digest that users of the drop-in make by hand ----

    def by_hand(self, path):
        with open(os.path.join(ROOT, "docs/start/mooncake.md"), encoding="utf-8") as page:
            command, = re.findall(r"^    NAME=(\$\(cd MODEL && .*\)) +#", page.read(), re.MULTILINE)
        run = subprocess.run(["bash", "-c", f"echo {command.replace('MODEL', path)}"], check=True, capture_output=True, text=True)
        self.assertEqual(run.stderr, "")
        return run.stdout.strip()

    def test_a_digest_by_hand_follows_from_all_files_and_their_names_wherever_they_lie(self):
        want = self.by_hand(self.path)
        self.assertRegex(want, "^[0-9a-f]{16}$")
        moved = self.model("moved")
        for name in os.listdir(moved):
            shutil.copy(f"{self.path}/{name}", f"{moved}/{name}")
        os.rename(f"{moved}/config.json", f"{self.directory}/blob")
        os.symlink(f"{self.directory}/blob", f"{moved}/config.json")  # as in the hub's cache
        os.mkdir(f"{moved}/.cache")
        write(f"{moved}/.cache/when", "fetched now")
        self.assertEqual(self.by_hand(moved), want)
        for name in ("pytorch_model.bin", "model.pt", "model.pth", "model.gguf", "model.ckpt", "a name.npz"):
            write(f"{moved}/{name}", "weights")
            found = self.by_hand(moved)
            write(f"{moved}/{name}", "WEIGHTS")
            self.assertEqual(len({want, found, self.by_hand(moved)}), 3, name)
            os.unlink(f"{moved}/{name}")
        os.mkdir(f"{moved}/below")
        os.rename(f"{moved}/tokenizer.json", f"{moved}/below/tokenizer.json")
        self.assertNotEqual(self.by_hand(moved), want)

    def test_files_that_hang_keep_nobody(self):
        held, want, goes_on, look = weights.Held(False), self.identity(), threading.Event(), weights.files_of
        self.addCleanup(goes_on.set)
        with mock.patch.object(weights, "files_of", lambda *given: (goes_on.wait(), look(*given))[1]):
            with mock.patch.object(weights, "WAIT_SECONDS", 0.05):
                self.assertIsNone(held.name(1, self.path))
            began = threading.active_count()
            self.assertEqual([held.name(1, self.path) for _ in range(10)], [None] * 10, "each waited")
            self.assertEqual(threading.active_count(), began)
            goes_on.set()
            wait_until(lambda: held.name(1, self.path) == want, 30, "the name is known")

    def test_files_that_hang_keep_no_process_from_its_end(self):
        program = f"""
import threading
from sluice import weights
reads = threading.Event()
weights.digest_bytes = lambda *given: (reads.set(), threading.Event().wait())
weights.WAIT_SECONDS = 0.05
print(weights.Held(False).name(1, {self.path!r}))
reads.wait()
"""
        self.assertEqual(interpreter(program).stdout, "None\n")

    def test_the_digest_of_a_load_is_made_without_its_engine(self):
        held, want, goes_on, make = weights.Held(False), self.identity(), threading.Event(), weights.digest_of
        self.addCleanup(goes_on.set)
        with mock.patch.object(weights, "digest_of", lambda *given: (goes_on.wait(), make(*given))[1]):
            self.assertEqual(held.load(1, self.path, lambda: "loaded"), "loaded")
            with mock.patch.object(weights, "WAIT_SECONDS", 0.05):
                self.assertIsNone(held.name(1, self.path))
        goes_on.set()
        wait_until(lambda: held.name(1, self.path) == want, 30, "the name is known")


if __name__ == "__main__":
    main()
