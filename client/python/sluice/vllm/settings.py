"""Settings in kv_connector_extra_config, in addition to those of all back ends (sluice.backend)."""

from sluice.backend import Options, number, one_of, switch, text


def saved(name, value):
    return value if value == "layers" else switch(name, value)


def rate(name, value):
    return value if value == LEARN else number(0, PREFILL_MAX)(name, value)


LEARN = "learn"
PREFILL_MAX = 1 << 40
ROWS = {
    "parts": (number(0, 64), 0),                    # slices of KV heads; 0: one for each KV head, 64 at most
    "stages": (number(0, 64), 0),                   # number of pipeline stages with which blocks are shared; 0: this engine's number
    "load": (one_of("async", "layers", "sync"), "async"),  # async: other requests run meanwhile; sync: the step waits; layers: each layer
    "save": (saved, True),                          # whether computed blocks are stored; layers: while the other layers are computed
    "store_timeout": (number(0.001, 3600, float), 30.0),  # seconds; loads use `timeout`
    "hold": (number(0, 3600, float), 2.0),          # seconds after a lookup during which its blocks are not evicted
    "handover": (one_of("storage", "direct"), None),  # from prefill to decode; None: as FD_PD_TRANSFER_VIA_STORAGE selects
    "handover_timeout": (number(0.001, 3600, float), 30.0),  # seconds that decode waits for prefill's blocks
    "stores_max": (number(0, 1 << 30), 0),          # vLLM blocks that stores may reference; 0: a quarter of all
    "prefill_rate": (rate, 0),                      # tokens/s that the engine computes; blocks slower to load are skipped; learn: measured; 0: none
    "prefill_doubles": (number(0, PREFILL_MAX), 0),  # position of the token that takes twice as long as the first; 0: all take equally long
    "events_medium": (text, "CPU"),                 # medium in KV events
    "events_kept": (number(1, 1 << 24), 65536),     # blocks of a class that were announced in KV events and are checked
}


def parse(given):
    """Options of vLLM's dict. Raises ValueError with source, name and value."""
    return Options(given, rows=ROWS, where="kv_connector_extra_config: ")


def saves(options, producer):
    """Effective value of `save` in an engine with this role: as set, or False if it is not a producer."""
    return producer and options.save
