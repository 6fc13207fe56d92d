"""The configuration of all back ends for engines: the same rules for every place where settings may be.

Settings are read from these places; later ones override earlier ones:
1. the file that `config_file` of the engine's own configuration or $SLUICE_BACKEND_CONFIG names: a JSON object;
2. the environment: SLUICE_BACKEND_TIMEOUT=2 for `timeout`;
3. the engine's own configuration (vLLM's kv_connector_extra_config, SGLang's and LMCache's extra_config).

Unknown names and values of the wrong kind are errors. A boolean is true, false, yes, no, on, off, 1 or 0, in any case of letters.

| setting | default | meaning |
|---|---|---|
| instance | $SLUICE_INSTANCE, "default" | the node's name |
| config | none | a configuration file of the node |
| settings | none | settings of the node, as in sluice.Client |
| timeout | 10 | seconds that a store or a load may take |
| retry | 1 | seconds without calls after a call that the node did not answer |
| model | digest of the model's weights | a name instead of the digest; engines with the same name share blocks with any weights |
| weights | pieces | `whole`: the digest covers every byte of the model's files, not 4 MiB of each (sluice.weights) |
| mode | standalone-store | `embedded`: this process contributes `global_segment_size` bytes to the node; `standalone-store`: none |
| global_segment_size | 4 GiB; 0 | bytes; more than 0 when embedded, else 0 |
| local_buffer_size | 4 GiB | must be more than 0; accepted for compatibility, nothing is buffered |
| enable_offload | false | accepted for compatibility; the node's own settings select its disks |
"""

import difflib
import json
import logging
import math
import os

from . import Client, SluiceError, store_config

_log = logging.getLogger("sluice.backend")
_SWITCHES = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


def switch(name, value):
    """Returns a bool from a bool, a text or 0 or 1. This check, like all others here, raises ValueError for any other value."""
    if isinstance(value, bool):
        return value
    if isinstance(value, (str, int)) and str(value).strip().lower() in _SWITCHES:
        return _SWITCHES[str(value).strip().lower()]
    raise ValueError(f"{name}: true or false, not {value!r}")


def number(least, most, kind=int):
    """Returns a check for an int or a float (kind) from least to most, which may be given as text."""

    def check(name, value):
        try:
            made = None if isinstance(value, bool) else kind(value)
            if made is not None and (not math.isfinite(made) or kind is int and isinstance(value, float) and made != value):
                made = None
        except (TypeError, ValueError, OverflowError):
            made = None
        if made is None or not least <= made <= most:
            raise ValueError(f"{name}: a number from {least} to {most}, not {value!r}")
        return made

    return check


def text(name, value):
    """Checks for a str that is not empty, or None."""
    if value is not None and (not isinstance(value, str) or not value):
        raise ValueError(f"{name}: a text, not {value!r}")
    return value


def one_of(*choices):
    """Returns a check for one of these texts."""

    def check(name, value):
        if value not in choices:
            raise ValueError(f"{name}: one of {', '.join(choices)}, not {value!r}")
        return value

    return check


def table(name, value):
    """Checks for a dict, or the text of a JSON object, or None."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    if value is not None and not isinstance(value, dict):
        raise ValueError(f"{name}: a JSON object, not {value!r}")
    return value


_ROWS = {"instance": (text, None), "config": (text, None), "settings": (table, None), "timeout": (number(0.001, 3600, float), 10.0),
         "retry": (number(0.001, 3600, float), 1.0), "model": (text, None), "weights": (one_of("pieces", "whole"), "pieces")}
_STORE = ("mode", "global_segment_size", "local_buffer_size", "enable_offload")


class Options:
    """Settings of a back end, as attributes. rows: {name: (check, default)}, which add to or replace those above; check(name, value)
    returns the attribute's value. ignored: names that the engine handles itself. where: prefix of names of the engine's own configuration
    in error texts. Raises ValueError, which names source, setting and value."""

    def __init__(self, given, rows=None, ignored=(), where=""):
        self._rows = {**_ROWS, **(rows or {})}
        given = {name: value for name, value in dict(given).items() if name not in ignored}
        path = given.pop("config_file", None) or os.environ.get("SLUICE_BACKEND_CONFIG")
        told = {}
        for source, values in ((f"{path}: ", _file(path)), ("SLUICE_BACKEND_", _environment()), (where, given)):
            for name, value in values.items():
                if name not in self._rows and name not in _STORE:
                    raise ValueError(f"{source}{name}: unknown setting{self._alike(name)}")
                told[name] = (source, value)
        for name, (check, default) in self._rows.items():
            source, value = told.get(name, (where, default))
            setattr(self, name, default if value is None else check(source + name, value))
        store = {name: _plain(value) for name, (_, value) in told.items() if name in _STORE}
        try:
            self.store = store_config(**{"mode": "standalone-store", **store})
        except SluiceError as error:
            source = next((told[name][0] for name in _STORE if name in told and name in str(error)), where)
            raise ValueError(f"{source}{error}") from None

    def _alike(self, name):
        near = difflib.get_close_matches(str(name), [*self._rows, *_STORE], 1)
        return f"; did you mean {near[0]}?" if near else f" (known: {', '.join(sorted([*self._rows, *_STORE]))})"

    @property
    def whole(self):
        """Whether the digest of the weights covers every byte."""
        return self.weights == "whole"

    def open(self, seconds=None):
        """Opens a client of the node; in mode embedded it contributes memory of this process. seconds: time for the node to answer (None:
        the setting timeout). Raises SluiceError."""
        client = Client(self.instance, config=self.config, settings=self.settings, timeout=self.timeout if seconds is None else seconds)
        lent = self.store["global_segment_size"]
        if lent > 0:
            try:
                client.contribute(f"backend-{os.getpid()}-{id(client):x}", lent, timeout=self.timeout)
            except SluiceError:
                client.close()
                raise
            _log.info("contributed %d bytes of memory to the node", lent)
        return client


def _plain(value):
    """Converts a value to the text that store_config reads."""
    return value if value is None or isinstance(value, str) else str(value)


def _file(path):
    if path is None:
        return {}
    try:
        with open(path, encoding="utf-8") as file:
            values = json.load(file)
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from None
    if not isinstance(values, dict):
        raise ValueError(f"{path}: a JSON object is needed, not {type(values).__name__}")
    return values


def _environment():
    prefix = "SLUICE_BACKEND_"
    return {name[len(prefix):].lower(): value for name, value in os.environ.items()
            if name.startswith(prefix) and name != prefix + "CONFIG"}
