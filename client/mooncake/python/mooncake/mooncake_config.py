"""Settings of a store's client, from Mooncake's files and environment variables."""

import json
import os
import re
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any, Dict, Mapping, Optional

DEFAULT_GLOBAL_SEGMENT_SIZE = 3355443200  # bytes
DEFAULT_LOCAL_BUFFER_SIZE = 1073741824  # bytes
DEFAULT_CLIENT_HTTP_PORT = 9300

_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([a-z]*)")
_UNITS = {"": 0, "b": 0, "k": 1, "kb": 1, "m": 2, "mb": 2, "g": 3, "gb": 3, "t": 4, "tb": 4}  # powers of 1024
_SIZE_END = 1 << 64  # sizes are below it
_BOOLEANS = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}


def _refuse(name: str, value: object, wanted: str) -> ValueError:
    return ValueError(f"{name}: {value!r} is not {wanted}")


def parse_size(value: object, name: str = "size") -> int:
    """Returns bytes for 4294967296, "4294967296", "4GB", "1.5 gb", "512k": units are powers of 1024, in any case; a fraction of a byte is
    dropped. Raises ValueError for anything else: negative numbers, percentages, 2^64 and above."""
    size: Optional[int] = None
    if isinstance(value, str):
        found = _SIZE.fullmatch(value.strip().lower())
        if found is not None and found.group(2) in _UNITS:
            size = int(Fraction(found.group(1)) * 1024 ** _UNITS[found.group(2)])
    elif isinstance(value, int) and not isinstance(value, bool):
        size = value
    elif isinstance(value, float) and value.is_integer():  # JSON has only one type of number
        size = int(value)
    if size is None or not 0 <= size < _SIZE_END:
        raise _refuse(name, value, 'a size: bytes, or a number with b, kb, mb, gb or tb, as in "4GB"')
    return size


def parse_bool(value: object, name: str = "value") -> bool:
    """Returns a bool for a boolean, 0 or 1, or "true", "1", "yes", "on" and their opposites in any case. Raises ValueError for anything
    else: a misspelt "false" must not mean true."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int) and value in (0, 1):
        return value == 1
    if isinstance(value, str) and value.strip().lower() in _BOOLEANS:
        return _BOOLEANS[value.strip().lower()]
    raise _refuse(name, value, "a boolean: true or false")


def parse_port(value: object, name: str = "port") -> int:
    """Returns a port, 1..65535, from a number or its text. Raises ValueError."""
    text = str(value).strip() if isinstance(value, (int, str)) and not isinstance(value, bool) else ""
    if not re.fullmatch(r"[0-9]{1,5}", text) or not 1 <= int(text) <= 65535:
        raise _refuse(name, value, "a port: 1..65535")
    return int(text)


def _parse_text(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise _refuse(name, value, "a text")
    return value


_PARSERS = {
    "global_segment_size": parse_size,
    "local_buffer_size": parse_size,
    "enable_ssd_offload": parse_bool,
    "enable_client_http_server": parse_bool,
    "client_http_port": parse_port,
}
_REQUIRED = ("local_hostname", "metadata_server", "master_server_address")
# Environment variable of each field. An empty variable counts as not set.
_VARIABLES = {
    "master_server_address": "MOONCAKE_MASTER",
    "local_hostname": "MOONCAKE_LOCAL_HOSTNAME",
    "metadata_server": "MOONCAKE_TE_META_DATA_SERVER",
    "global_segment_size": "MOONCAKE_GLOBAL_SEGMENT_SIZE",
    "local_buffer_size": "MOONCAKE_LOCAL_BUFFER_SIZE",
    "protocol": "MOONCAKE_PROTOCOL",
    "device_name": "MOONCAKE_DEVICE",
    "enable_ssd_offload": "MOONCAKE_OFFLOAD_ENABLED",
    "ssd_offload_path": "MOONCAKE_OFFLOAD_FILE_STORAGE_PATH",
    "tenant_id": "MOONCAKE_TENANT_ID",
    "enable_client_http_server": "MOONCAKE_ENABLE_CLIENT_HTTP_SERVER",
    "client_http_port": "MOONCAKE_CLIENT_HTTP_PORT",
}


@dataclass
class MooncakeConfig:
    """Arguments of `MooncakeDistributedStore.setup`. Sizes are in bytes."""

    local_hostname: str
    metadata_server: str
    master_server_address: str
    global_segment_size: int = DEFAULT_GLOBAL_SEGMENT_SIZE
    local_buffer_size: int = DEFAULT_LOCAL_BUFFER_SIZE
    protocol: str = "tcp"
    device_name: str = ""
    enable_ssd_offload: bool = False
    ssd_offload_path: str = ""
    tenant_id: str = "default"
    enable_client_http_server: bool = False
    client_http_port: int = DEFAULT_CLIENT_HTTP_PORT

    @classmethod
    def _from(cls, given: Mapping[str, Any], names: Mapping[str, str]) -> "MooncakeConfig":
        """Makes a config of the given fields that are not None. names: names of fields in messages."""
        taken: Dict[str, Any] = {}
        for field in fields(cls):
            name, value = field.name, given.get(field.name)
            if value is not None:
                taken[name] = _PARSERS.get(name, _parse_text)(value, names.get(name, name))
            elif name in _REQUIRED:
                raise ValueError(f"{names.get(name, name)} is required and not set")
        for name in _REQUIRED:
            if not taken[name].strip():
                raise ValueError(f"{names.get(name, name)} is required and empty")
        config = cls(**taken)
        config.protocol = config.protocol.lower()
        return config

    @classmethod
    def from_file(cls, file_path: str) -> "MooncakeConfig":
        """Reads a JSON object; ignores unknown names. Raises OSError, and ValueError for missing fields, invalid values and invalid
        JSON."""
        with open(file_path, encoding="utf-8") as file:
            given = json.load(file)
        if not isinstance(given, dict):
            raise ValueError(f"{file_path}: not a JSON object")
        return cls._from(given, {})

    @classmethod
    def load_from_env(cls) -> "MooncakeConfig":
        """Reads the file that MOONCAKE_CONFIG_PATH names; without one the variables MOONCAKE_MASTER (required),
        MOONCAKE_LOCAL_HOSTNAME and so on. Raises as from_file does."""
        path = os.environ.get("MOONCAKE_CONFIG_PATH")
        if path:
            return cls.from_file(path)
        given = {"local_hostname": "localhost", "metadata_server": "P2PHANDSHAKE"}
        given.update({field: os.environ[name] for field, name in _VARIABLES.items() if os.environ.get(name)})
        if "master_server_address" not in given:
            raise ValueError("neither MOONCAKE_CONFIG_PATH (a JSON file) nor MOONCAKE_MASTER (HOST:PORT) is set")
        return cls._from(given, _VARIABLES)
