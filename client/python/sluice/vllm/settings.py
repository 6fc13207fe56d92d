"""What kv_connector_extra_config may say beside the settings of all back ends (sluice.backend)."""

from sluice.backend import Options, number, one_of, switch, text

ROWS = {
    "model": (text, None),                          # name under which blocks are stored; None: vLLM's model
    "parts": (number(0, 64), 0),                    # slices of KV heads; 0: as many as there are KV heads, 64 at most
    "load": (one_of("async", "sync"), "async"),     # async: other requests run meanwhile; sync: the step waits
    "save": (switch, True),                         # whether blocks that were computed are stored
    "store_timeout": (number(0.001, 3600, float), 30.0),  # seconds; `timeout` is that of loads
    "hold": (number(0, 3600, float), 2.0),          # seconds from the look-up to the load during which nothing of it is evicted
    "handover": (one_of("storage", "direct"), None),  # from prefill to decode; None: as FD_PD_TRANSFER_VIA_STORAGE says
    "handover_timeout": (number(0.001, 3600, float), 30.0),  # seconds that decode waits for prefill's blocks
    "stores_max": (number(1, 4096), 64),            # under way; more are not stored
}


def parse(given):
    """Options of vLLM's dict. Raises ValueError with source, name and value."""
    return Options(given, rows=ROWS, where="kv_connector_extra_config: ")
