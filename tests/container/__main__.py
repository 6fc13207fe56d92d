"""Tests deploy/container: renders the chart with Go's templates and sprig, as Helm does; checks its manifests and the plain ones against
Kubernetes' schemas, and the Compose file against its own; builds the image with buildah on a bare Debian 12, and runs it in namespaces as
the DaemonSet says.

    deploy/test --containers [--write] [--no-image] [--debs DIRECTORY] [--keep]

    --write            makes deploy/container/kubernetes/{configmap,daemonset,networkpolicy,podmonitor}.yaml again from the chart, and exits
    --no-image         only manifests: seconds, after the first time
    --debs DIRECTORY   packages for the image; else those of build/package, which are made when there are none
    --keep             leaves build/container-test

The image takes two minutes, root, mmdebstrap and buildah. Exit codes: 0, 1 (something failed), 77 (all was skipped, with the reason).
"""

import argparse
import copy
import functools
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "support"), HERE]
import bare_debian  # noqa: E402
import pods  # noqa: E402
import suite  # noqa: E402

ROOT = os.path.realpath(os.path.join(HERE, "..", ".."))
SHIPPED = os.path.join(ROOT, "deploy", "container")
CHART = os.path.join(SHIPPED, "helm", "sluice")
PLAIN = os.path.join(SHIPPED, "kubernetes")
BUILD = os.path.join(ROOT, "build", "container-test")
TOOLS = os.path.join(ROOT, "build", "container-tools")  # kept between runs
WHEELS = os.path.join(HERE, "requirements.txt")
COMPOSE_SCHEMA = os.path.join(HERE, "compose_schema.txt")  # only for its schema: its requirements are not installed
VERSIONS = ("1.25", "1.31", "1.37")  # the oldest that Chart.yaml names, and later ones
PLAIN_VALUES = {"disk": {"sizeGiB": 256}, "metrics": {"port": 9400}, "podMonitor": {"enabled": True}}
EVERYTHING = {
    "image": {"tag": "1.2.3", "digest": "sha256:" + "0" * 64}, "networkPolicy": {"metricsFrom": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]}, "imagePullSecrets": [{"name": "registry"}], "instance": "second", "uid": 2000, "ranks": 8,
    "shmHostPath": "/dev/shm/second", "cpu": {"limit": "4"}, "disk": {"sizeGiB": 512, "seccompProfile": {"type": "Localhost", "localhostProfile": "s.json"}},
    "metrics": {"port": 9400, "tokenSecret": {"name": "sluice-token", "key": "token"}}, "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "events": {"port": 5557}, "cluster": {"enabled": True, "directoryUrlSecret": {"name": "redis", "key": "url"}},
    "gpu": {"enabled": True}, "settings": {"load_log": True, "op_timeout": "3s", "directory_name": "a,b@c", "trace_events": 4096}, "nodeSelector": {"gpu": "yes"}, "tolerations": [{"operator": "Exists"}],
    "affinity": {"nodeAffinity": {}}, "priorityClassName": "system-node-critical", "podAnnotations": {"a": "b"}, "podLabels": {"c": "d"}}
MiB = 1 << 20
options = argparse.Namespace(image=True, debs=None, keep=False)


def setUpModule():
    shutil.rmtree(BUILD, ignore_errors=True)
    os.makedirs(BUILD)


def tearDownModule():
    if not options.keep:
        shutil.rmtree(BUILD, ignore_errors=True)


def ran(*words, **more):
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **more)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(words)[:200]} ended with {done.returncode}:\n{done.stdout[-3000:]}")
    return done.stdout


def text_of(path):
    """None if it does not exist."""
    if not os.path.exists(path):
        return None
    with open(path, encoding="utf-8") as file:
        return file.read()


@functools.cache
def renderer():
    """Builds the program; skips where that fails."""
    source = "/usr/share/gocode/src/"
    if shutil.which("go") is None or not all(os.path.isdir(source + name) for name in ("github.com/Masterminds/sprig", "sigs.k8s.io/yaml")):
        raise unittest.SkipTest("no go with sprig and sigs.k8s.io/yaml: deploy/install --containers brings them")
    os.makedirs(TOOLS, exist_ok=True)
    program = os.path.join(TOOLS, "render")
    ran("go", "build", "-o", program, "./render", cwd=HERE,
        env={**os.environ, "GO111MODULE": "off", "GOPATH": "/usr/share/gocode", "GOCACHE": os.path.join(TOOLS, "go")})
    return program


@functools.cache
def python():
    """An interpreter with the validators; skips where PyPI cannot be reached."""
    place = os.path.join(TOOLS, "venv")
    mark = os.path.join(place, "whole")
    wanted = text_of(WHEELS) + text_of(COMPOSE_SCHEMA)
    if text_of(mark) != wanted:
        shutil.rmtree(place, ignore_errors=True)
        pip = [os.path.join(place, "bin", "pip"), "--disable-pip-version-check", "install", "--quiet", "--only-binary=:all:", "--require-hashes"]
        try:
            ran("/usr/bin/python3", "-m", "venv", place)
            ran(*pip, "-r", WHEELS)
            ran(*pip, "--no-deps", "-r", COMPOSE_SCHEMA)
        except AssertionError as reason:
            raise unittest.SkipTest(f"no validators from PyPI: {str(reason).splitlines()[-1]}") from None
        with open(mark, "w", encoding="utf-8") as file:
            file.write(wanted)
    return os.path.join(place, "bin", "python")


def asked(program, given):
    """Runs a Python program where the validators are installed, and returns its answer from JSON."""
    done = subprocess.run([python(), "-c", program], input=json.dumps(given), stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def documents(text):
    return [one for one in asked("import json, sys, yaml\nprint(json.dumps(list(yaml.safe_load_all(json.load(sys.stdin)))))", text) if one]


def rendered(values=None, *more):
    """The chart's manifests as text; values are JSON, which is also YAML."""
    path = os.path.join(BUILD, "values.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(values or {}, file)
    return ran(renderer(), *more, CHART, "sluice", "sluice", path)


def manifests(values=None):
    """{kind: manifest}"""
    return {one["kind"]: one for one in documents(rendered(values))}


def pod_of(values=None):
    return manifests(values)["DaemonSet"]["spec"]["template"]["spec"]


def schema_faults(version, ones):
    """Errors by the schemas of Kubernetes; other kinds of manifests are not checked."""
    return asked("""
import json, sys, kubernetes_validate as validate
version, ones = json.load(sys.stdin)
faults = []
for one in ones:
    try:
        validate.validate(one, version, strict=True)
    except validate.ValidationError as fault:
        faults.append(one["kind"] + ": " + fault.message)
print(json.dumps(faults))""", [version, ones])


def json_faults(schema, value):
    return asked("""
import json, sys, jsonschema
schema, value = json.load(sys.stdin)
if "2019-09" in schema["$schema"]:
    schema["$schema"] = "https://json-schema.org/draft/2019-09/schema"  # as that draft names itself
kind = jsonschema.validators.validator_for(schema)
print(json.dumps([fault.json_path + ": " + fault.message for fault in kind(schema).iter_errors(value)]))""", [schema, value])


def mib(text):
    number, unit = re.fullmatch(r"(\d+)(Mi|Gi|MiB|GiB|m|g)", text).groups()
    return int(number) * (1024 if unit[0] in "Gg" else 1)


def plain_text(name):
    return text_of(os.path.join(PLAIN, name))


def plain_made():
    """{file: text} of the manifests that are made from the chart."""
    made = {}
    for part in rendered(PLAIN_VALUES).split("---\n# Source: sluice/templates/")[1:]:
        name, text = part.split("\n", 1)
        text = re.sub(r"^ *(app.kubernetes.io/managed-by|helm.sh/chart): .*\n", "", text, flags=re.MULTILINE)
        made[name] = f"# Made of the chart by deploy/test --containers --write, with {json.dumps(PLAIN_VALUES)}.\n{text}"
    return made


class Chart(unittest.TestCase):
    def test_manifests_follow_the_schemas_of_kubernetes(self):
        for values in ({}, PLAIN_VALUES, EVERYTHING, {"prepareDirectories": False, "networkPolicy": {"enabled": False}}):
            ones = [one for one in documents(rendered(values)) if one["kind"] != "PodMonitor"]
            policy = set() if "prepareDirectories" in values else {"NetworkPolicy"}
            self.assertEqual({one["kind"] for one in ones}, {"ConfigMap", "DaemonSet", *policy})
            for version in VERSIONS:
                self.assertEqual(schema_faults(version, ones), [], (version, values))

    def test_a_wrong_manifest_is_one(self):
        wrong = manifests()["DaemonSet"]
        wrong["spec"]["template"]["spec"]["containers"][0]["readynessProbe"] = {}
        self.assertNotEqual(schema_faults(VERSIONS[-1], [wrong]), [])

    def test_values_follow_their_schema_and_others_are_refused(self):
        schema = json.loads(text_of(os.path.join(CHART, "values.schema.json")))
        defaults = documents(text_of(os.path.join(CHART, "values.yaml")))[0]
        self.assertEqual(json_faults(schema, defaults), [])
        self.assertEqual(set(defaults) | {"global"}, set(schema["properties"]))
        for name, value in EVERYTHING.items():
            whole = copy.deepcopy(defaults)
            whole[name] = {**whole[name], **value} if isinstance(value, dict) else value
            self.assertEqual(json_faults(schema, whole), [], name)
        for wrong in ({"cluster": {"directoryUrl": "redis://user:password@10.0.0.9:6379"}}, {"settings": {"directory_url": "redis://user:password@10.0.0.9:6379"}}, {"image": {"repository": "a", "digest": "12"}}, {"memoryMib": 1}, {"memoryMiB": "4Gi"}, {"uid": -1}, {"runtimeDirectory": "run"}):
            self.assertNotEqual(json_faults(schema, {**defaults, **wrong}), [], wrong)

    def test_pods_have_no_privileges(self):
        for values in ({}, PLAIN_VALUES, EVERYTHING):
            pod = pod_of(values)
            self.assertEqual([pod.get(name) for name in ("hostPID", "hostNetwork", "automountServiceAccountToken", "enableServiceLinks")],
                             [None, None, False, False])
            self.assertTrue(pod["securityContext"]["runAsNonRoot"])
            for container in pod["containers"]:
                rights = container["securityContext"]
                self.assertEqual((rights["allowPrivilegeEscalation"], rights["readOnlyRootFilesystem"], rights["capabilities"]),
                                 (False, True, {"drop": ["ALL"]}))
                self.assertNotIn("runAsUser", rights)
            for container in pod["initContainers"]:
                self.assertEqual(container["securityContext"]["capabilities"], {"drop": ["ALL"], "add": ["CHOWN", "FOWNER"]})
        # The default profiles of runtimes forbid io_uring, which disks and connections to other nodes need.
        for values, profile in (({}, "RuntimeDefault"), (PLAIN_VALUES, "Unconfined"), ({"cluster": {"enabled": True, "peers": "b@h:1"}}, "Unconfined")):
            self.assertEqual(pod_of(values)["securityContext"]["seccompProfile"], {"type": profile})
        self.assertNotIn("initContainers", pod_of({"prepareDirectories": False}))

    def test_no_pod_has_directories_that_systemd_gives_to_a_unit(self):
        for pod in (pod_of(PLAIN_VALUES), documents(plain_text("vllm.yaml"))[0]["spec"]["template"]["spec"]):
            paths = [volume["hostPath"]["path"] for volume in pod["volumes"] if "hostPath" in volume]
            self.assertEqual([path for path in paths if re.match("/run/sluice/|/var/(lib|log)/sluice/", path)], [])

    def test_nobody_is_let_in_who_is_not_named(self):
        def rules(values):
            ones = manifests(values)
            policy, template = ones["NetworkPolicy"]["spec"], ones["DaemonSet"]["spec"]["template"]
            self.assertEqual(policy["policyTypes"], ["Ingress"])
            self.assertLessEqual(policy["podSelector"]["matchLabels"].items(), template["metadata"]["labels"].items())
            found = {port["port"]: rule["from"] for rule in policy.get("ingress", []) for port in rule["ports"]}
            self.assertEqual(set(found), {port["containerPort"] for port in template["spec"]["containers"][0].get("ports") or []})
            return found

        self.assertEqual(rules({}), {})
        self.assertNotIn("metrics_listen", manifests({})["ConfigMap"]["data"]["sluice.conf"])
        self.assertEqual(rules(PLAIN_VALUES), {9400: [{"podSelector": {}}]})
        everything = rules(EVERYTHING)
        self.assertEqual(everything[9400], EVERYTHING["networkPolicy"]["metricsFrom"])
        self.assertEqual(everything[5557], [{"podSelector": {}}])
        self.assertEqual([list(one["podSelector"]["matchLabels"]) for one in everything[7411]], [["app.kubernetes.io/name", "app.kubernetes.io/instance"]])

    def test_an_image_is_named_by_its_digest_and_a_password_by_its_secret(self):
        pod = pod_of(EVERYTHING)
        self.assertEqual({one["image"] for one in pod["containers"] + pod["initContainers"]}, {"localhost/sluice@sha256:" + "0" * 64})
        self.assertEqual([one["valueFrom"]["secretKeyRef"] for one in pod["containers"][0]["env"] if one["name"] == "SLUICE_DIRECTORY_URL"],
                         [{"name": "redis", "key": "url"}])

    def test_memory_fits_its_limits(self):
        for values in ({}, PLAIN_VALUES, {"memoryMiB": 65536, "indexMiB": 4096, "ranks": 8, "overheadMiB": 2048}, {"ranks": 16},
                       {"ranks": 8, "overheadMiB": 256}):
            ones = manifests(values)
            config = dict(line.split(" = ") for line in ones["ConfigMap"]["data"]["sluice.conf"].strip().splitlines())
            pod = ones["DaemonSet"]["spec"]["template"]["spec"]
            limits = pod["containers"][0]["resources"]
            self.assertIn("hostPath", next(volume for volume in pod["volumes"] if volume["name"] == "shm"))  # engines mount it as well
            self.assertGreaterEqual(mib(limits["limits"]["memory"]), mib(config["memory"]) + mib(config["index_memory"]) + 128 + 256)
            self.assertGreaterEqual(mib(limits["limits"]["memory"]),  # runtime/base/sl_limits.c
                                    mib(config["memory"]) + mib(config["index_memory"]) + 256 + 64 * int(config["ranks"]))
            self.assertEqual(limits["limits"]["memory"], limits["requests"]["memory"])

    def test_a_node_may_be_roots_for_engines_whose_image_runs_as_root(self):
        for uid in (0, 10001):
            context = pod_of({"uid": uid})["securityContext"]
            self.assertEqual((context["runAsUser"], context["runAsNonRoot"]), (uid, uid != 0))

    def test_the_grace_period_covers_the_flush_and_the_stop(self):
        pod = pod_of({"disk": {"sizeGiB": 1, "flushSeconds": 300}})
        stop = pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
        self.assertEqual(stop[:2], ["sh", "-c"])
        self.assertEqual(stop[2], 'sluicectl flush --timeout 300s; : >"$SLUICE_RUNTIME_DIR/keep-arena"; true')
        self.assertGreaterEqual(pod["terminationGracePeriodSeconds"], 300 + 4 * 6)
        self.assertEqual(pod_of()["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][2], ': >"$SLUICE_RUNTIME_DIR/keep-arena"; true')

    def test_a_cluster_names_its_nodes_by_the_machine(self):
        environment = {one["name"]: one for one in pod_of(EVERYTHING)["containers"][0]["env"]}
        self.assertEqual(environment["SLUICE_NODE_NAME"]["valueFrom"]["fieldRef"]["fieldPath"], "spec.nodeName")
        self.assertEqual(environment["SLUICE_CLUSTER_LISTEN"]["value"], "$(POD_IP):7411")
        self.assertLess(list(environment).index("POD_IP"), list(environment).index("SLUICE_CLUSTER_LISTEN"))  # otherwise it would not be expanded
        with self.assertRaisesRegex(AssertionError, "cluster.directoryUrl, cluster.directoryUrlSecret or cluster.peers"):
            rendered({"cluster": {"enabled": True}})

    def test_settings_are_taken_by_the_program(self):
        program = os.path.join(ROOT, "build", "release", "bin", "sluicectl")
        if not os.path.exists(program):
            self.skipTest("skipped: no sluicectl in build/release")
        for values in ({}, PLAIN_VALUES, EVERYTHING):
            path = os.path.join(BUILD, "sluice.conf")
            with open(path, "w", encoding="utf-8") as file:
                file.write(manifests(values)["ConfigMap"]["data"]["sluice.conf"])
            ran(program, "config", "--plain", "--config", path, env={"PATH": os.environ["PATH"], "SLUICE_NODE_NAME": "a"})

    def test_the_monitor_selects_the_pods_and_their_port(self):
        ones = manifests(EVERYTHING)
        template = ones["DaemonSet"]["spec"]["template"]
        monitor = ones["PodMonitor"]["spec"]
        self.assertLessEqual(monitor["selector"]["matchLabels"].items(), template["metadata"]["labels"].items())
        ports = {port["name"] for port in template["spec"]["containers"][0]["ports"]}
        self.assertLessEqual({one["port"] for one in monitor["podMetricsEndpoints"]}, ports)
        self.assertEqual(monitor["podMetricsEndpoints"][0]["authorization"]["credentials"], EVERYTHING["metrics"]["tokenSecret"])
        with self.assertRaisesRegex(AssertionError, "wants metrics.port"):
            rendered({"podMonitor": {"enabled": True}, "metrics": {"port": 0}})

    def test_versions_are_those_of_the_tree(self):
        version = re.search(r"^project\(sluice VERSION ([0-9.]+)", text_of(os.path.join(ROOT, "CMakeLists.txt")), re.MULTILINE)[1]
        chart = documents(text_of(os.path.join(CHART, "Chart.yaml")))[0]
        self.assertEqual((chart["version"], chart["appVersion"]), (version, version))
        self.assertIn(f"image: localhost/sluice-vllm:{version}\n", plain_text("vllm.yaml"))

    def test_notes_say_what_engines_need(self):
        notes = rendered({}, "--notes")
        for line in ("SLUICE_INSTANCE=default", "SLUICE_RUNTIME_DIR=/run/sluice/default", "uid 10001"):
            self.assertIn(line, notes)


class Plain(unittest.TestCase):
    def test_what_is_made_of_the_chart_is_so(self):
        for name, text in plain_made().items():
            self.assertEqual(plain_text(name), text, f"{name}: deploy/test --containers --write")

    def test_manifests_follow_the_schemas_of_kubernetes(self):
        names = [name for name in os.listdir(PLAIN) if name not in ("kustomization.yaml", "podmonitor.yaml")]
        ones = [one for name in names for one in documents(plain_text(name))]
        self.assertEqual(sorted(one["kind"] for one in ones), ["ConfigMap", "DaemonSet", "Deployment", "Namespace", "NetworkPolicy"])
        for version in VERSIONS:
            self.assertEqual(schema_faults(version, ones), [], version)

    @unittest.skipUnless(os.geteuid() == 0, "skipped: only root can make directories of others")
    def test_a_directory_of_the_machine_with_files_of_others_stays_theirs(self):
        (container,) = documents(plain_text("daemonset.yaml"))[0]["spec"]["template"]["spec"]["initContainers"]
        rights = container["securityContext"]
        places = [mount["mountPath"] for mount in container["volumeMounts"]]
        for owner, mode, files, want in ((0, 0o755, (), 10001), (0, 0o755, ("lost+found",), 10001), (10001, 0o700, ("index",), 10001), (0, 0o755, ("theirs",), 0), (65534, 0o700, ("theirs",), 65534)):
            with tempfile.TemporaryDirectory() as machine:
                command = list(container["command"])
                for place in places:
                    os.makedirs(machine + place)
                    command[-1] = command[-1].replace(place, machine + place)
                last = machine + places[-1]
                for name in files:
                    with open(f"{last}/{name}", "w", encoding="utf-8"):
                        pass
                os.chown(last, owner, owner)
                os.chmod(last, mode)
                done = subprocess.run([*pods.as_user(rights["runAsUser"], rights["capabilities"]["add"]), *command],
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
                self.assertEqual((done.returncode == 0, os.stat(last).st_uid), (want == 10001, want), done.stdout)

    def test_the_kustomization_names_files_that_are_there(self):
        for name in documents(plain_text("kustomization.yaml"))[0]["resources"]:
            self.assertTrue(os.path.exists(os.path.join(PLAIN, name)), name)

    def test_the_engine_meets_the_node(self):
        node = documents(plain_text("daemonset.yaml"))[0]["spec"]["template"]["spec"]
        engine = documents(plain_text("vllm.yaml"))[0]["spec"]["template"]["spec"]
        self.assertEqual(*({pod["securityContext"]["runAsUser"]} for pod in (node, engine)))
        self.assertEqual(*([volume["hostPath"]["path"] for volume in pod["volumes"] if volume["name"] == name]
                           for pod, name in ((node, "run"), (engine, "sluice"))))
        self.assertEqual(*({one["name"]: one.get("value") for one in pod["containers"][0]["env"]}["SLUICE_INSTANCE"] for pod in (node, engine)))
        self.assertFalse(engine["enableServiceLinks"])


class Compose(unittest.TestCase):
    def setUp(self):
        self.whole = documents(text_of(os.path.join(SHIPPED, "compose.yaml")))[0]
        self.node, self.engine = self.whole["services"]["sluice"], self.whole["services"]["vllm"]

    def test_it_follows_the_schema(self):
        (path,) = glob.glob(os.path.join(os.path.dirname(python()), "..", "lib", "*", "site-packages", "compose", "config", "compose_spec.json"))
        schema = json.loads(text_of(path))
        self.assertEqual(json_faults(schema, self.whole), [])
        self.assertNotEqual(json_faults(schema, {"services": {"a": {"imagge": "b"}}}), [])

    def test_what_is_built_lies_where_it_says(self):
        for service in (self.node, self.engine):
            context = os.path.normpath(os.path.join(SHIPPED, service["build"]["context"]))
            self.assertEqual(os.path.dirname(context), os.path.join(ROOT, "build"))
            self.assertTrue(os.path.exists(os.path.normpath(os.path.join(context, service["build"]["dockerfile"]))))

    def test_memory_fits_its_limits(self):
        settings = self.node["environment"]
        shared = mib(re.search("size=([0-9]+[mg])", self.whole["volumes"]["segments"]["driver_opts"]["o"])[1])
        self.assertGreaterEqual(shared, mib(settings["SLUICE_MEMORY"]) + mib(settings["SLUICE_INDEX_MEMORY"]) + 128)
        self.assertGreaterEqual(mib(self.node["mem_limit"]), shared + 768)

    def test_the_two_share_two_volumes(self):
        volumes = [dict(volume.split(":") for volume in service["volumes"]) for service in (self.node, self.engine)]
        self.assertEqual({name: volumes[0][name] for name in volumes[0].keys() & volumes[1].keys()},
                         {"run": "/run/sluice/default", "segments": "/dev/shm/sluice"})
        self.assertEqual(self.engine["environment"]["SLUICE_RUNTIME_DIR"], volumes[1]["run"])
        self.assertEqual(self.engine["environment"]["SLUICE_SHM_DIR"], volumes[1]["segments"] + "/default")
        self.assertEqual(self.node["healthcheck"]["test"], ["CMD", "sluicectl", "status", "--ready"])
        for key in ("ipc", "pid", "network_mode", "privileged"):
            self.assertNotIn(key, {**self.node, **self.engine})


SCRAPE = "import sys, urllib.request; sys.stdout.write(urllib.request.urlopen('http://127.0.0.1:9400/metrics', timeout=20).read().decode())"


class Image(unittest.TestCase):
    """Built once, and run as the DaemonSet says."""

    @classmethod
    def setUpClass(cls):
        if not options.image:
            raise unittest.SkipTest("skipped: --no-image")
        if not bare_debian.possible() or shutil.which("buildah") is None:
            raise unittest.SkipTest("skipped: the image needs root, mmdebstrap and buildah (deploy/install --containers brings them)")
        cls.buildah_words = ["buildah", "--root", os.path.join(BUILD, "store"), "--runroot", os.path.join(BUILD, "runroot")]
        cls.addClassCleanup(cls.clean)
        base = os.path.join(BUILD, "base")
        try:
            bare_debian.make(base, ("ca-certificates",))
        except bare_debian.Skipped as reason:
            raise unittest.SkipTest(f"skipped: {reason}") from None
        empty = cls.buildah("from", "scratch").strip()
        cls.buildah("add", "--quiet", empty, base, "/")
        cls.buildah("commit", "--quiet", empty, "localhost/bare")
        cls.buildah("rm", empty)
        shutil.rmtree(base)
        context = os.path.join(BUILD, "context")
        os.makedirs(context)
        for package in cls.packages():
            shutil.copy(package, context)
        cls.buildah("build", "--isolation", "chroot", "--build-arg", "BASE=localhost/bare", "--tag", "localhost/sluice",
                    "--file", os.path.join(SHIPPED, "Containerfile"), context)
        cls.config = json.loads(cls.buildah("inspect", "--type", "image", "localhost/sluice"))["OCIv1"]["config"]
        cls.root = cls.buildah("mount", cls.buildah("from", "localhost/sluice").strip()).strip()

    @classmethod
    def buildah(cls, *words):
        done = subprocess.run([*cls.buildah_words, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=900, check=False)
        if done.returncode != 0:
            raise AssertionError(f"buildah {words[0]} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        return done.stdout

    @classmethod
    def packages(cls):
        place = options.debs or os.path.join(ROOT, "build", "package")
        if not glob.glob(os.path.join(place, "sluice_*.deb")):
            ran(os.path.join(ROOT, "deploy", "package"), "--output", place)
        return [path for name in ("sluice", "libsluice0") for path in glob.glob(os.path.join(place, name + "_*.deb"))]

    @classmethod
    def clean(cls):
        subprocess.run([*cls.buildah_words, "umount", "--all"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        subprocess.run([*cls.buildah_words, "rm", "--all"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)

    def machine(self):
        folder = os.path.join(BUILD, "machine-" + self.id().rsplit(".", 1)[1])
        os.makedirs(folder)
        return pods.Machine(folder, self.root, dict(variable.split("=", 1) for variable in self.config["Env"]))

    def prepared(self, machine, pod):
        """Does what the init container does."""
        (container,) = pod["initContainers"]
        rights = container["securityContext"]
        ran(*machine.words(machine.mounts(pod, container, None), container["command"], {},
                           pods.as_user(rights["runAsUser"], rights["capabilities"]["add"])))

    def started(self, machine, values):
        """Starts a pod of the chart and waits until its node is ready; returns it and its manifest."""
        ones = manifests(values)
        pod = ones["DaemonSet"]["spec"]["template"]["spec"]
        config = os.path.join(machine.folder, "config")
        os.makedirs(config, exist_ok=True)
        with open(os.path.join(config, "sluice.conf"), "w", encoding="utf-8") as file:
            file.write(ones["ConfigMap"]["data"]["sluice.conf"])
        self.prepared(machine, pod)
        container = pods.Container(machine, pod, pod["containers"][0], config, self.config["Entrypoint"])
        self.addCleanup(container.__exit__)
        time.sleep(0.5)
        self.assertIsNone(container.probe(pod["containers"][0]["startupProbe"]))
        return container, pod["containers"][0], pod

    def from_engine(self, machine, *command, stdin=None):
        """Runs sluicectl in a container with what vllm.yaml gives an engine."""
        pod = documents(plain_text("vllm.yaml"))[0]["spec"]["template"]["spec"]
        container = pod["containers"][0]
        environment = {one["name"]: one["value"] for one in container["env"] if one["name"] != "HOME"}
        container["volumeMounts"] = [mount for mount in container["volumeMounts"] if mount["name"] != "cache"]
        done = subprocess.run(machine.words(machine.mounts(pod, container, None), command, environment, pods.as_user(pod["securityContext"]["runAsUser"])),
                              input=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_it_is_small_and_has_no_root(self):
        used = sum(os.lstat(os.path.join(at, name)).st_blocks * 512 for at, _, names in os.walk(self.root) for name in names)
        print(f"the image: {used / MiB:.0f} MiB")
        self.assertLess(used, 256 * MiB)
        self.assertRegex(self.config["User"], r"^[1-9][0-9]*:[1-9][0-9]*$")  # a number: runAsNonRoot cannot check a name
        self.assertEqual(ran("find", self.root, "-xdev", "-type", "f", "-perm", "/6000"), "")

    def test_a_pod_serves_an_engine_in_another_container(self):
        machine = self.machine()
        container, manifest, _ = self.started(machine, {"memoryMiB": 64, "indexMiB": 64, "metrics": {"port": 9400}})

        self.from_engine(machine, "sluicectl", "put", "from the engine", "-", stdin=b"hello")
        self.assertEqual(container.exec("sluicectl", "get", "from the engine").stdout, b"hello")
        self.assertEqual(self.from_engine(machine, "sluicectl", "get", "from the engine"), b"hello")
        self.assertIsNone(container.probe(manifest["readinessProbe"]))
        figures = ran("nsenter", f"--target={container.first()}", "--net", sys.executable, "-c", SCRAPE)
        self.assertIn("\nsluice_memory_", figures)
        self.assertNotEqual(container.exec("touch", "/usr/bin/other").returncode, 0)  # a read-only file system

    def test_a_pod_that_is_replaced_keeps_what_it_had(self):
        machine = self.machine()
        values = {"memoryMiB": 64, "indexMiB": 64, "disk": {"sizeGiB": 1}}
        container, manifest, pod = self.started(machine, values)
        self.from_engine(machine, "sluicectl", "put", "kept", "-", stdin=b"value")

        hook = container.exec(*manifest["lifecycle"]["preStop"]["exec"]["command"])
        self.assertEqual((hook.returncode, hook.stdout), (0, b""))
        self.assertEqual(container.end(pod["terminationGracePeriodSeconds"]), 0)
        self.assertTrue(os.listdir(machine.path("/dev/shm/sluice")), "memory stays on the machine")
        container, manifest, _ = self.started(machine, values)

        self.assertRegex(container.exec("sluicectl", "ls").stdout.decode(), r" m.* kept\n")
        self.assertEqual(self.from_engine(machine, "sluicectl", "get", "kept"), b"value")

    def test_a_pod_with_other_sizes_removes_memory_and_has_its_disk(self):
        machine = self.machine()
        values = {"memoryMiB": 64, "indexMiB": 64, "disk": {"sizeGiB": 1}}
        container, manifest, pod = self.started(machine, values)
        self.from_engine(machine, "sluicectl", "put", "kept", "-", stdin=b"value")

        for change in {"memoryMiB": 96}, {"indexMiB": 96}:
            container.exec(*manifest["lifecycle"]["preStop"]["exec"]["command"])
            self.assertEqual(container.end(pod["terminationGracePeriodSeconds"]), 0)
            values.update(change)
            container, manifest, pod = self.started(machine, values)
            self.assertEqual(self.from_engine(machine, "sluicectl", "get", "kept"), b"value")
            self.assertIn(b"is removed (--replace-memory)", container.exec("sluice-node", "logs", "supervisor").stdout)

    def test_a_container_that_is_killed_keeps_what_it_had(self):
        machine = self.machine()
        values = {"memoryMiB": 64, "indexMiB": 64}
        container, _, _ = self.started(machine, values)
        self.from_engine(machine, "sluicectl", "put", "kept", "-", stdin=b"value")

        os.kill(container.first(), signal.SIGKILL)
        container.process.wait(timeout=60)
        self.started(machine, values)

        self.assertEqual(self.from_engine(machine, "sluicectl", "get", "kept"), b"value")

    def test_a_machine_that_has_lost_its_memory_has_its_disk(self):
        machine = self.machine()
        values = {"memoryMiB": 64, "indexMiB": 64, "disk": {"sizeGiB": 1}}
        container, manifest, pod = self.started(machine, values)
        self.from_engine(machine, "sluicectl", "put", "kept", "-", stdin=b"value")

        container.exec(*manifest["lifecycle"]["preStop"]["exec"]["command"])
        self.assertEqual(container.end(pod["terminationGracePeriodSeconds"]), 0)
        shutil.rmtree(machine.path("/dev/shm/sluice"))
        container, _, _ = self.started(machine, values)

        self.assertEqual(self.from_engine(machine, "sluicectl", "get", "kept"), b"value")


def main():
    parser = argparse.ArgumentParser(prog="deploy/test --containers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="make the plain manifests again, and exit")
    parser.add_argument("--no-image", dest="image", action="store_false", help="manifests alone")
    parser.add_argument("--debs", help="existing packages")
    parser.add_argument("--keep", action="store_true", help="leave build/container-test")
    _, rest = parser.parse_known_args(namespace=options)
    sys.argv[1:] = rest
    if options.write:
        setUpModule()
        for name, text in plain_made().items():
            with open(os.path.join(PLAIN, name), "w", encoding="utf-8") as file:
                file.write(text)
        tearDownModule()
        return
    suite.run()


if __name__ == "__main__":
    main()
