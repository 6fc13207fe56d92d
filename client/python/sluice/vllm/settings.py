"""What kv_connector_extra_config may say beside the settings of all back ends (sluice.backend)."""

from sluice.backend import Options, number, one_of, switch, text


def saved(name, value):
    return value if value == "layers" else switch(name, value)


def rate(name, value):
    return value if value == LEARN else number(0, PREFILL_MAX)(name, value)


LEARN = "learn"
PREFILL_MAX = 1 << 40
ROWS = {
    "parts": (number(0, 64), 0),                    # slices of KV heads; 0: as many as there are KV heads, 64 at most
    "stages": (number(0, 64), 0),                   # pipelines of so many stages share blocks; 0: those with as many as this engine
    "load": (one_of("async", "layers", "sync"), "async"),  # async: other requests run meanwhile; sync: the step waits; layers: each layer
    "save": (saved, True),                          # whether blocks that were computed are stored; layers: while the rest is computed
    "store_timeout": (number(0.001, 3600, float), 30.0),  # seconds; `timeout` is that of loads
    "hold": (number(0, 3600, float), 2.0),          # seconds from the look-up to the load during which nothing of it is evicted
    "handover": (one_of("storage", "direct"), None),  # from prefill to decode; None: as FD_PD_TRANSFER_VIA_STORAGE says
    "handover_timeout": (number(0.001, 3600, float), 30.0),  # seconds that decode waits for prefill's blocks
    "stores_max": (number(0, 1 << 30), 0),          # blocks of vLLM's that stores may keep; 0: a quarter of them
    "prefill_rate": (rate, 0),                      # tokens/s that the engine computes: what is slower to load is not; learn: from its steps; 0: all is loaded
    "prefill_doubles": (number(0, PREFILL_MAX), 0),  # place of the token that takes twice as long as the first; 0: all take as long
    "events_medium": (text, "CPU"),                 # what those events call it
    "events_kept": (number(1, 1 << 24), 65536),     # blocks of a class that are announced as stored and looked after, where vLLM has KV events
}


def parse(given):
    """Options of vLLM's dict. Raises ValueError with source, name and value."""
    return Options(given, rows=ROWS, where="kv_connector_extra_config: ")


def saves(options, producer):
    """What `save` comes to in an engine with this role: as it was set, or False."""
    return producer and options.save
