"""Flags of mooncake_master and mooncake_client, with the names and defaults of Mooncake's programs, so that launch scripts work.

A name is written -x or --x, with dashes or underscores. A value follows `=` or is the next word. A boolean has no value (--x, --nox) or
one after `=`. The last occurrence counts. The command line overrides the file of --config_path: a flat JSON object with the same names,
or lines of `name: value` (.yaml)."""

import difflib
import json
import re
from fractions import Fraction
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from mooncake.mooncake_config import parse_size
from mooncake.places import Failure

BOOL, COUNT, REAL, TEXT, SIZE, MILLIS, SECONDS = "bool", "count", "real", "text", "size", "millis", "seconds"
KINDS = {BOOL: "true or false", COUNT: "a whole number", REAL: "a number", TEXT: "a text", SIZE: "bytes, or with kb mb gb tb",
         MILLIS: "a duration: ms, or with ms s min h", SECONDS: "a duration: seconds, or with ms s min h"}
BOOLEANS = {**dict.fromkeys(("true", "t", "yes", "y", "on", "1"), True), **dict.fromkeys(("false", "f", "no", "n", "off", "0"), False)}
UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000}
FILE_BYTES_MAX = 1 << 20

PATH_BYTES = 900
YEAR_MS = 8760 * 3_600_000
INT_MAX = 2**31 - 1
SIZE_MAX = 2**63 - 1
ONE_HOST = "a node of Sluice is on one host"
NO_NOF = "Sluice has no NVMe over fabrics"
NO_TASKS = "there are no copies to move between hosts: all values of a node are in one arena"
NO_SHADOW = "Sluice writes values to disk after every put, not when they are evicted"
KEPT = "memory outlives the node's processes by itself"
IN_PROCESS = "the process that uses values reads and writes them in shared memory"


class WrongUse(Failure):
    """An error in the command line, or in the file that it names: exit code 2."""


class Flag(NamedTuple):
    name: str
    kind: str
    default: str
    help: str
    low: int = 0  # durations in milliseconds; texts in bytes
    high: int = 1
    choices: Optional[str] = None  # for texts: words
    used: bool = True  # False: accepted without effect; the help has the reason


LOGGING = (
    Flag("logtostderr", BOOL, "false", "this process logs to stderr", used=False),
    Flag("alsologtostderr", BOOL, "false", "this process logs to stderr", used=False),
    Flag("colorlogtostderr", BOOL, "false", "lines are JSON", used=False),
    Flag("stderrthreshold", COUNT, "2", "this process logs to stderr", 0, 3, used=False),
    Flag("minloglevel", COUNT, "0", "0 info, 1 warnings, 2 and 3 only errors", 0, 3),
    Flag("v", COUNT, "0", "SLUICE_LOG_LEVEL sets the log level of the node's processes", 0, 100, used=False),
    Flag("log_dir", TEXT, "", "logs of the node's processes; \"\": its runtime directory", 0, PATH_BYTES),
    Flag("max_log_size", COUNT, "1800", "log files are not split", 0, INT_MAX, used=False),
)
MASTER = (
    Flag("config_path", TEXT, "", "JSON or YAML file with these names; the command line overrides it", 0, PATH_BYTES),
    Flag("rpc_port", COUNT, "0", "overrides port if not 0", 0, 65535),
    Flag("port", COUNT, "50051",
         "names the node: its instance is mooncake-PORT ($SLUICE_INSTANCE overrides it); probes that connect get "
         "one line of JSON", 1, 65535),
    Flag("rpc_thread_num", COUNT, "0", "no calls come over the network", 0, 65535, used=False),
    Flag("max_threads", COUNT, "16", "no calls come over the network", 0, 65535, used=False),
    Flag("listen_host", TEXT, "127.0.0.1",
         "ours: address of ports without an address of their own (rpc_address, metrics_host, http_metadata_server_host); "
         "0.0.0.0, as in Mooncake's master, opens all to the network", 1, 255),
    Flag("rpc_address", TEXT, "",
         "address of the port; empty: listen_host, or 0.0.0.0 if a cluster's secret is set, so that hosts can join", 0, 255),
    Flag("rpc_interface", TEXT, "", "network interface whose address replaces rpc_address", 0, 15),
    Flag("rpc_conn_timeout_seconds", SECONDS, "0", "time in which a host that joins must prove that it knows the secret; 0: 3 s", 0, YEAR_MS),
    Flag("rpc_enable_tcp_no_delay", BOOL, "true", "no calls come over the network", used=False),
    Flag("metrics_port", COUNT, "9003", "port of the admin HTTP", 1, 65535),
    Flag("metrics_host", TEXT, "",
         "address of the admin HTTP; empty: listen_host. Requests that change or remove values need the token of "
         "$MOONCAKE_ADMIN_TOKEN or $MOONCAKE_ADMIN_TOKEN_FILE; without one they are allowed only over the loopback", 0, 255),
    Flag("allowed_origins", TEXT, "",
         "ours: origins of web pages that may use the admin HTTP and the metadata server, as https://HOST:PORT, separated by "
         "commas; all others are refused", 0, 1023),
    Flag("enable_metric_reporting", BOOL, "true", "the master logs no periodic summary; /metrics is always available", used=False),
    Flag("default_kv_lease_ttl", MILLIS, "10000", "how long a lookup leases a value; the node's setting lease_ttl", 0, YEAR_MS),
    Flag("default_kv_soft_pin_ttl", MILLIS, "30m",
         "a put without a time gets 30 minutes from the client library", 0, YEAR_MS, used=False),
    Flag("max_kv_soft_pin_ttl", MILLIS, "24h", "longest soft pin; the node's setting soft_pin_max", 0, YEAR_MS),
    Flag("allow_evict_soft_pinned_objects", BOOL, "true", "soft-pinned values are evicted last", used=False),
    Flag("eviction_ratio", REAL, "0.05", "share of memory that one eviction frees; the node's setting evict_ratio", 0, 1),
    Flag("eviction_high_watermark_ratio", REAL, "0.90",
         "share of memory in use above which values are evicted; the node's setting evict_watermark", 0, 1),
    Flag("nof_eviction_ratio", REAL, "0.05", NO_NOF, 0, 1, used=False),
    Flag("nof_eviction_high_watermark_ratio", REAL, "0.90", NO_NOF, 0, 1, used=False),
    Flag("put_start_discard_timeout_sec", SECONDS, "30",
         "age after which another writer of the key may replace a writer; the node's setting put_preempt", 1000, YEAR_MS),
    Flag("put_start_release_timeout_sec", SECONDS, "600",
         "time after which the memory of an unfinished put is freed; the node's setting put_release", 1000, YEAR_MS),
    Flag("client_ttl", SECONDS, "10", "the death of a process is noticed at once, without pings", 0, YEAR_MS, used=False),
    Flag("memory_allocator", TEXT, "offset", "Sluice has its own allocator", 0, 64, choices="offset cachelib", used=False),
    Flag("allocation_strategy", TEXT, "random",
         "a put without a preferred segment uses the emptiest one", 0, 64, choices="random free_ratio_first local_first ssd_free_ratio_first cxl", used=False),
    Flag("enable_http_metadata_server", BOOL, "false", "serve /metadata for transfer engines on a separate port"),
    Flag("http_metadata_server_port", COUNT, "8080", "port of the metadata server", 1, 65535),
    Flag("http_metadata_server_host", TEXT, "", "address of the metadata server; empty: listen_host", 0, 255),
    Flag("metadata_open", BOOL, "false", "ours: writes to /metadata need no token, even if $MOONCAKE_ADMIN_TOKEN is set"),
    Flag("enable_metadata_cleanup_on_timeout", BOOL, "false", "there are no pings, so there are no timeouts", used=False),
    Flag("enable_offload", BOOL, "false",
         "give the node a disk tier: MOONCAKE_OFFLOAD_FILE_STORAGE_PATH (/data/file_storage), "
         "MOONCAKE_OFFLOAD_TOTAL_SIZE_LIMIT_BYTES"),
    Flag("offload_on_evict", BOOL, "false", NO_SHADOW, used=False),
    Flag("offload_force_evict", BOOL, "false", NO_SHADOW, used=False),
    Flag("offloading_queue_limit", COUNT, "50000", NO_SHADOW, 0, INT_MAX, used=False),
    Flag("offload_cap_ratio", REAL, "0.5", NO_SHADOW, 0, 1, used=False),
    Flag("promotion_on_hit", BOOL, "false", "reads from disk always go through memory", used=False),
    Flag("promotion_admission_threshold", COUNT, "2", "reads from disk always go through memory", 0, INT_MAX, used=False),
    Flag("promotion_queue_limit", COUNT, "50000", "reads from disk always go through memory", 0, INT_MAX, used=False),
    Flag("promotion_max_per_heartbeat", COUNT, "1", "reads from disk always go through memory", 0, INT_MAX, used=False),
    Flag("dynamic_replication_mode", TEXT, "off", ONE_HOST, 0, 16, choices="off observe enforce", used=False),
    Flag("dynamic_replication_heat_window_seconds", SECONDS, "10", ONE_HOST, 0, YEAR_MS, used=False),
    Flag("dynamic_replication_admission_qps_threshold", REAL, "0.8", ONE_HOST, 0, INT_MAX, used=False),
    Flag("dynamic_replication_max_memory_replicas", COUNT, "2", ONE_HOST, 0, 1024, used=False),
    Flag("root_fs_dir", TEXT, "", "give the node a disk tier here (MOONCAKE_OFFLOAD_FILE_STORAGE_PATH overrides it)", 0, PATH_BYTES),
    Flag("global_file_segment_size", SIZE, "9223372036854775807", "upper limit of the disk tier", 0, SIZE_MAX),
    Flag("cluster_id", TEXT, "mooncake_cluster", "the node's setting directory_name names a cluster", 0, 255, used=False),
    Flag("enable_disk_eviction", BOOL, "true", "a full disk tier always evicts", used=False),
    Flag("quota_bytes", SIZE, "0", "size of the disk tier; 0: 90 % of the disk", 0, SIZE_MAX),
    Flag("enable_ha", BOOL, "false", KEPT, used=False),
    Flag("ha_backend_type", TEXT, "etcd", KEPT, 0, 16, choices="etcd redis k8s", used=False),
    Flag("ha_backend_connstring", TEXT, "", KEPT, 0, 1023, used=False),
    Flag("etcd_endpoints", TEXT, "", KEPT, 0, 1023, used=False),
    Flag("enable_oplog", BOOL, "false", KEPT, used=False),
    Flag("oplog_poll_interval_ms", MILLIS, "1000", KEPT, 0, YEAR_MS, used=False),
    Flag("oplog_batch_max_entries", COUNT, "1024", KEPT, 0, INT_MAX, used=False),
    Flag("batch_oplog_retry_timeout_sec", SECONDS, "180", KEPT, 0, YEAR_MS, used=False),
    Flag("enable_snapshot", BOOL, "false", KEPT, used=False),
    Flag("enable_snapshot_restore", BOOL, "false", KEPT, used=False),
    Flag("snapshot_interval_seconds", SECONDS, "600", KEPT, 0, YEAR_MS, used=False),
    Flag("snapshot_child_timeout_seconds", SECONDS, "300", KEPT, 0, YEAR_MS, used=False),
    Flag("snapshot_retention_count", COUNT, "2", KEPT, 0, INT_MAX, used=False),
    Flag("snapshot_backup_dir", TEXT, "", KEPT, 0, PATH_BYTES, used=False),
    Flag("snapshot_object_store_type", TEXT, "", KEPT, 0, 16, choices="local s3", used=False),
    Flag("snapshot_object_store_connstring", TEXT, "", KEPT, 0, 1023, used=False),
    Flag("snapshot_catalog_store_type", TEXT, "", KEPT, 0, 16, choices="embedded redis", used=False),
    Flag("snapshot_catalog_store_connstring", TEXT, "", KEPT, 0, 1023, used=False),
    Flag("enable_kv_events", BOOL, "false", "no events are published", used=False),
    Flag("kv_events_bind_endpoint", TEXT, "", "no events are published", 0, 255, used=False),
    Flag("kv_events_backend_id", TEXT, "", "no events are published", 0, 255, used=False),
    Flag("kv_events_emit_legacy_compat", BOOL, "true", "no events are published", used=False),
    Flag("kv_events_emit_object_key", BOOL, "true", "no events are published", used=False),
    Flag("kv_events_queue_capacity", COUNT, "65536", "no events are published", 0, INT_MAX, used=False),
    Flag("enable_multi_tenants", BOOL, "false", "tenants have separate name spaces and no quotas", used=False),
    Flag("tenant_quota_connector_type", TEXT, "file", "tenants have no quotas", 0, 16, choices="file etcd", used=False),
    Flag("tenant_quota_connector_uri", TEXT, "", "tenants have no quotas", 0, 1023, used=False),
    Flag("max_total_finished_tasks", COUNT, "10000", NO_TASKS, 0, INT_MAX, used=False),
    Flag("max_total_pending_tasks", COUNT, "10000", NO_TASKS, 0, INT_MAX, used=False),
    Flag("max_total_processing_tasks", COUNT, "10000", NO_TASKS, 0, INT_MAX, used=False),
    Flag("pending_task_timeout_sec", SECONDS, "300", NO_TASKS, 0, YEAR_MS, used=False),
    Flag("processing_task_timeout_sec", SECONDS, "300", NO_TASKS, 0, YEAR_MS, used=False),
    Flag("max_retry_attempts", COUNT, "10", NO_TASKS, 0, INT_MAX, used=False),
    Flag("enable_cxl", BOOL, "false", "values lie in shared memory", used=False),
    Flag("cxl_path", TEXT, "/dev/dax0.0", "values lie in shared memory", 0, PATH_BYTES, used=False),
    Flag("cxl_size", SIZE, "8gb", "values lie in shared memory", 0, SIZE_MAX, used=False),
    Flag("nof_heartbeat_interval_sec", SECONDS, "10", NO_NOF, 0, YEAR_MS, used=False),
    Flag("nof_heartbeat_probe_timeout_ms", MILLIS, "1000", NO_NOF, 0, YEAR_MS, used=False),
    Flag("nof_heartbeat_failures_threshold", COUNT, "3", NO_NOF, 0, INT_MAX, used=False),
    Flag("nof_probe_timeout_ms", MILLIS, "1000", NO_NOF, 0, YEAR_MS, used=False),
    Flag("nof_failures_threshold", COUNT, "3", NO_NOF, 0, INT_MAX, used=False),
    Flag("pod_name", TEXT, "", "pods get no label", 0, 255, used=False),
    Flag("pod_namespace", TEXT, "", "pods get no label", 0, 255, used=False),
    Flag("join", TEXT, "",
         "ours: HOST:PORT of another host's master: this host's node serves that master's clients on this host and shares values "
         "with the other nodes; all need the same MOONCAKE_CLUSTER_SECRET", 0, 255),
    Flag("cluster_address", TEXT, "",
         "ours: IP at which other hosts reach this one; empty: the source address towards the joined master, or the first address", 0, 63),
    Flag("cluster_dir", TEXT, "",
         "ours: directory of this host's name and keys in the cluster, which should survive a reboot; empty: "
         "$XDG_STATE_HOME/sluice/INSTANCE/cluster, /var/lib/sluice/... for root, ~/.local/state/sluice/..., or if none can be used"
         " the runtime directory", 0, PATH_BYTES),
    Flag("member_ttl", SECONDS, "1h",
         "ours: a host of the cluster that was silent for this time can be replaced by a new one (65 hosts at most)", 0, YEAR_MS),
    Flag("memory", SIZE, "0",
         "ours: upper limit of what clients contribute together, in shared memory, allocated as they contribute; 0: the smaller "
         "of 80 % of the free space in /dev/shm and half of what the tightest memory limit of a container leaves", 0, SIZE_MAX),
    *LOGGING,
)

CLIENT = (
    Flag("config_path", TEXT, "", "JSON or YAML file with these names; the command line overrides it", 0, PATH_BYTES),
    Flag("host", TEXT, "",
         "address of the port (empty: 127.0.0.1); HOST:PORT is the name of the contribution (with this machine's name if empty "
         "or 0.0.0.0)", 0, 255),
    Flag("port", COUNT, "50052", 'answers connections with one line of JSON; setup_dummy(..., "ip:PORT") finds the node by it', 1, 65535),
    Flag("metadata_server", TEXT, "http://127.0.0.1:8080/metadata", "a node needs no metadata server", 0, 1023, used=False),
    Flag("master_server_address", TEXT, "127.0.0.1:50051", "HOST:PORT of the mooncake_master of this host ($SLUICE_INSTANCE overrides it)", 1, 255),
    Flag("protocol", TEXT, "tcp", IN_PROCESS, 0, 64, used=False),
    Flag("device_names", TEXT, "", IN_PROCESS, 0, 1023, used=False),
    Flag("global_segment_size", SIZE, "4 GB", "memory to contribute while this process runs; 0: none", 0, SIZE_MAX),
    Flag("local_buffer_size", SIZE, "0", IN_PROCESS, 0, SIZE_MAX, used=False),
    Flag("threads", COUNT, "1", IN_PROCESS, 0, 65535, used=False),
    Flag("tenant_id", TEXT, "default", "contributions are for all tenants", 0, 255, used=False),
    Flag("enable_offload", BOOL, "false", "fail if the node has no disk tier (mooncake_master --enable_offload)"),
    Flag("start_offload_rpc_server", BOOL, "true", IN_PROCESS, used=False),
    Flag("enable_http_server", BOOL, "false", "serve /health and /metrics"),
    Flag("http_port", COUNT, "9300", "port of these", 1, 65535),
    *LOGGING,
)

def _parse(flag: Flag, text: str) -> Any:
    """Returns the value; None: the text does not fit the flag's kind. Durations are in ms."""
    if flag.kind == BOOL:
        return BOOLEANS.get(text.lower())
    if flag.kind == COUNT:
        return int(text) if re.fullmatch("[0-9]{1,19}", text) else None
    if flag.kind == REAL:
        return float(text) if re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,2})?", text) else None
    if flag.kind == SIZE:
        try:
            return parse_size(text)
        except ValueError:
            return None
    if flag.kind == TEXT:
        fits = len(text.encode()) <= flag.high and (flag.choices is None or text in ("", *flag.choices.split()))
        return text if fits else None
    found = re.fullmatch(r"([0-9]{1,18}(?:\.[0-9]{1,18})?)(ms|s|min|m|h|)", text.lower())
    if found is None:
        return None
    value = Fraction(found[1]) * UNITS_MS[found[2] or ("ms" if flag.kind == MILLIS else "s")]
    return int(value) if value.denominator == 1 else None


def _check(flag: Flag, text: str, source: str) -> Any:
    value = _parse(flag, text)
    if value is None and flag.kind == TEXT:
        raise WrongUse(f"{source}: --{flag.name}: '{text[:40]}' is not one of: {flag.choices}" if flag.choices else
                       f"{source}: --{flag.name}: longer than {flag.high} bytes")
    if value is None:
        raise WrongUse(f"{source}: --{flag.name}: '{text[:40]}' is not {KINDS[flag.kind]}")
    if flag.kind not in (BOOL, TEXT) and not flag.low <= value <= flag.high:
        unit = " ms" if flag.kind in (MILLIS, SECONDS) else ""
        raise WrongUse(f"{source}: --{flag.name}: '{text[:40]}' is not in {flag.low}..{flag.high}{unit}")
    if flag.kind == TEXT and len(text) < flag.low:
        raise WrongUse(f"{source}: --{flag.name} is empty")
    return value


class Flags:
    """The values of a program's flags: flags["port"]."""

    def __init__(self, table: Sequence[Flag]):
        self.table = {flag.name: flag for flag in table}
        self._values: Dict[str, Any] = {flag.name: _check(flag, flag.default, "default") for flag in table}
        self._given: Dict[str, str] = {}

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def given(self, name: str) -> bool:
        return name in self._given

    def ignored(self) -> List[Tuple[Flag, str]]:
        """Flags without effect whose value differs from the default, with the given text."""
        return [(flag, self._given[name]) for name, flag in self.table.items()
                if not flag.used and name in self._given and self._values[name] != _parse(flag, flag.default)]

    def _set(self, name: str, text: str, source: str) -> None:
        flag = self.table.get(name.replace("-", "_"))
        if flag is None:
            self._unknown(name, source)
        self._values[flag.name] = _check(flag, text, source)
        self._given[flag.name] = text

    def _unknown(self, name: str, source: str) -> None:
        nearest = difflib.get_close_matches(name.replace("-", "_")[:60], self.table, 1, 0)[0]
        raise WrongUse(f"{source}: unknown flag '{name[:60]}'; the nearest known one is --{nearest}")

    def parse(self, words: Sequence[str]) -> Optional[str]:
        """Reads the command line and the file that it names. Returns "help" or "version" if requested. Raises WrongUse."""
        source = "command line"
        pairs = []
        rest = list(words)
        while rest:
            word = rest.pop(0)
            found = re.fullmatch("--?([^-=][^=]*)(=.*)?", word, re.DOTALL)
            if found is None:
                raise WrongUse(f"{source}: '{word[:80]}' is not a flag (a boolean is written --x, --nox or --x=false)")
            name, value = found[1].replace("-", "_"), found[2] and found[2][1:]
            if name in ("help", "h", "helpfull", "version") and value is None:
                return "version" if name == "version" else "help"
            negated = self.table.get(name[2:]) if name.startswith("no") else None
            flag = self.table.get(name)
            if flag is None and negated is not None and negated.kind == BOOL and value is None:
                name, value = negated.name, "false"
            elif flag is None:
                self._unknown(found[1], source)
            elif value is None and flag.kind == BOOL:
                value = "true"
            elif value is None and not rest:
                raise WrongUse(f"{source}: --{name} needs a value: {KINDS[flag.kind]}")
            pairs.append((name, rest.pop(0) if value is None else value))
            _check(self.table[name], pairs[-1][1], source)
        path = dict(pairs).get("config_path", "")
        if path:
            for name, text, place in file_pairs(path):
                self._set(name, text, place)
        for name, text in pairs:
            self._set(name, text, source)
        return None

    def help(self) -> str:
        lines = []
        for flag in self.table.values():
            kind = f"one of: {flag.choices}" if flag.choices else KINDS[flag.kind]
            if flag.kind in (COUNT, REAL):
                kind += f", {flag.low}..{flag.high}"
            lines.append(f"  --{flag.name}={flag.default or chr(34) * 2}\n"
                         f"      {kind}. {'' if flag.used else 'Accepted without effect: '}{flag.help}\n")
        return "".join(lines)


def _unique(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
    if len(dict(pairs)) != len(pairs):
        raise ValueError("duplicate names")
    return dict(pairs)


def _json_pairs(path: str, text: str) -> List[Tuple[str, str, str]]:
    try:
        root = json.loads(text, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        raise WrongUse(f"{path}:{error.lineno}: {error.msg}") from error
    except (ValueError, RecursionError) as error:
        raise WrongUse(f"{path}: {error}") from error
    if not isinstance(root, dict):
        raise WrongUse(f"{path}: the file is not a JSON object")
    pairs = []
    for name, value in root.items():
        if isinstance(value, bool):
            value = "true" if value else "false"
        if not isinstance(value, (str, int, float)):
            raise WrongUse(f"{path}: {name}: neither text, number nor boolean")
        pairs.append((name, str(value), path))
    return pairs


_YAML_LINE = re.compile(r"""([A-Za-z0-9_-]+):[ \t]+("(?:[^"\\]|\\["\\])*"|'(?:[^']|'')*'|[^\s"'#&*!|>{\[%@`][^#]*?)[ \t]*(?:[ \t]#.*)?""")


def _yaml_pairs(path: str, text: str) -> List[Tuple[str, str, str]]:
    """Reads lines of `name: value` with comments, a subset of YAML. Quotes are as in YAML; the only escapes are \\" and \\\\."""
    pairs = []
    for number, line in enumerate(text.split("\n"), 1):
        if re.fullmatch(r"[ \t]*(#.*)?|---[ \t]*", line.rstrip("\r")):
            continue
        found = _YAML_LINE.fullmatch(line.rstrip("\r"))
        if found is None:
            raise WrongUse(f"{path}:{number}: expected a line of `name: value`; use a JSON file (.json) for other forms")
        name, value = found[1], found[2]
        if value[0] == '"':
            value = re.sub(r'\\(["\\])', r"\1", value[1:-1])
        elif value[0] == "'":
            value = value[1:-1].replace("''", "'")
        if name in [known for known, _, _ in pairs]:
            raise WrongUse(f"{path}:{number}: {name} occurs twice")
        pairs.append((name, value, f"{path}:{number}"))
    return pairs


def file_pairs(path: str) -> List[Tuple[str, str, str]]:
    """Returns (name, text, position in the file) of all members. Raises WrongUse."""
    if not path.endswith((".json", ".yaml", ".yml")):
        raise WrongUse(f"config_path '{path[:100]}': the name must end in .json, .yaml or .yml")
    try:
        with open(path, "rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
        text = data.decode()
    except OSError as error:
        raise WrongUse(f"config_path '{path[:150]}': {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise WrongUse(f"config_path '{path[:150]}': {error}") from error
    if len(data) > FILE_BYTES_MAX:
        raise WrongUse(f"'{path[:150]}' is larger than 1 MiB")
    pairs = _json_pairs(path, text) if path.endswith(".json") else _yaml_pairs(path, text)
    for name, value, place in pairs:
        if "\0" in value:
            raise WrongUse(f"{place}: {name}: a text contains a zero byte")
    return pairs
