"""Computes the addresses of a page's pieces in a pool of SGLang, and the names of its values.

A pool returns the addresses of pages (get_page_buffer_meta). A few pages are probed for address = first + page * stride, which native
code then uses for all pages. A pool for which this does not hold is refused.

The prefix of keys covers everything that determines what the bytes mean: model, dtype, page, layers, and the order of the bytes, but not
the number of ranks. The suffix names the heads of a rank by their numbers in the whole model."""

import array
import hashlib
import json

import torch

from sglang.srt.mem_cache.hicache_storage import PoolName
from sglang.srt.mem_cache.pool_host.mha import MHATokenToKVPoolHost
from sglang.srt.mem_cache.pool_host.mla import MLATokenToKVPoolHost
from sglang.srt.runtime_context import get_lora, get_model, get_spec

from .. import weights

FORMAT = 1  # of keys and values; with another number, no earlier page is found
PIECES_MAX, VALUES_MAX = 1 << 20, 65536
# The order of a value's bytes, from the slowest index to the fastest. It is the same for layer_first and page_first_direct.
ORDERS = {"layer_first": "layer token", "page_first_direct": "layer token", "page_first": "token layer", "page_head": "head token layer"}

MODEL_SETTINGS = ("kv_cache_dtype", "dtype", "quantization", "quantization_param_path", "load_format", "model_loader_extra_config",
                  "json_model_override_args")


def numbers(values):
    return array.array("Q", values)


class Plan:
    """For one pool: the arguments of put_pages and get_pages that are the same for every batch."""

    def __init__(self, identity, suffixes, page, limit, pieces):
        """pieces: the same number for each value: (address in page 0, stride of pages, bytes, offset in the value, count, step)."""
        self.identity = identity
        self.prefix = prefix_of(identity)
        self.suffixes = tuple(suffixes)
        self.page = page
        address, stride, length, offset, count, step = (numbers(column) for column in zip(*pieces))
        each = len(pieces) // len(self.suffixes)
        self.size = sum(n * bytes_ for n, bytes_ in zip(count, length))  # bytes of a page
        self.value_sizes = [sum(count[i] * length[i] for i in range(at, at + each)) for at in range(0, len(pieces), each)]
        runs = {} if set(count) == {1} else {"counts": count, "steps": step}
        self.arrays = {"page": page, "limit": limit, "addresses": address, "strides": stride, "lengths": length,
                       "offsets": offset, **runs}
        self.pages_max = max(1, min(PIECES_MAX // sum(count), VALUES_MAX // len(self.suffixes)))


def prefix_of(identity):
    text = json.dumps({"format": FORMAT, **identity}, sort_keys=True)
    return f"sglang/{hashlib.sha256(text.encode()).hexdigest()[:32]}/"


def pages_probed(meta, page, page_count):
    """Returns [(address in page 0, stride of pages, bytes)] for the pieces of a page. meta(indices) returns addresses and lengths."""
    told = sorted({0, min(1, page_count - 1), page_count // 2, page_count - 1})
    lists = [meta(torch.arange(number * page, (number + 1) * page, dtype=torch.int64)) for number in told]
    addresses, lengths = [list(one[0]) for one in lists], [list(one[1]) for one in lists]
    strides = [0] * len(addresses[0]) if len(told) == 1 else [b - a for a, b in zip(addresses[0], addresses[1])]
    for number, at, length in zip(told, addresses, lengths):
        if length != lengths[0] or at != [first + number * stride for first, stride in zip(addresses[0], strides)]:
            raise ValueError("its pages are not evenly spaced")
    if not lengths[0] or min(lengths[0]) < 1 or min(strides) < 0:
        raise ValueError("it has no bytes to store")
    return list(zip(addresses[0], strides, lengths[0]))


def in_a_row(pieces):
    """Rows of Plan for one value that consists of these pieces in order."""
    rows, offset = [], 0
    for address, stride, length in pieces:
        rows.append((address, stride, length, offset, 1, 0))
        offset += length
    return rows


def halves(pieces, layer_first):
    """K and V of MHA pages, each a list of pieces in the order of the value."""
    return (pieces[0::2], pieces[1::2]) if layer_first else (pieces[:1], pieces[1:])


def slices_of(pool, pieces, slices):
    """Rows of Plan for K and V cut into `slices` groups of heads."""
    if slices == 1:
        k, v = halves(pieces, pool.layout == "layer_first")
        return in_a_row([*k, *v])
    rows = []
    for number in range(slices):
        offset = 0
        for half, dim in zip(halves(pieces, pool.layout == "layer_first"), (pool.head_dim, pool.v_head_dim)):
            row = pool.head_num * dim * pool.dtype.itemsize  # bytes of all heads of a token in a layer
            for address, stride, length in half:
                rows.append((address + number * (row // slices), stride, row // slices, offset, length // row, row))
                offset += length // slices
    return rows


def heads_of(pool, name, config, options):
    """Returns (first head of this rank, heads of the model)."""
    total = config.tp_size * pool.head_num
    if name == PoolName.KV and options.kv_heads is not None and options.kv_heads != total:
        total = options.kv_heads
        if pool.head_num != max(1, total // config.tp_size) or (total < config.tp_size and config.tp_size % total):
            raise ValueError(f"kv_heads {total} does not give {config.tp_size} ranks {pool.head_num} heads each")
        if total < config.tp_size:
            return config.tp_rank // (config.tp_size // total), total
    return config.tp_rank * pool.head_num, total


def slice_count(pool, total, config, flat):
    """Number of values of a page on this rank: the number of ranks into which the finest split would divide this rank."""
    finest = getattr(config, "tp_lcm_size", None) or config.tp_size
    heads = max(1, total // finest)
    if flat or heads >= pool.head_num:
        return 1
    if pool.head_num % heads:
        raise ValueError(f"tp_lcm_size {finest} does not split {pool.head_num} heads of a rank")
    return pool.head_num // heads


def weights_of(path, revision, options):
    """Returns (name, revision) of weights that SGLang loaded."""
    model = get_model()
    return weights.identity(path, revision, options.whole, str(getattr(model.load_format, "value", model.load_format)), model.download_dir)


def special_settings(options):
    """Settings of SGLang that change what is computed or stored; for example, pools of both kinds of FP8 have the type uint8. Only
    settings that were set, so that other engines keep their keys. SGLang's own keys contain names and paths of the adapters at its start,
    and unique numbers for adapters that it loaded later."""
    model, spec, adapters = get_model(), get_spec(), get_lora().lora_paths
    told = {name: getattr(model, name) for name in MODEL_SETTINGS}
    if spec.speculative_draft_model_path not in (None, model.model_path):  # else the draft's layers are the model's own
        told["draft"] = weights_of(spec.speculative_draft_model_path, spec.speculative_draft_model_revision, options)
    if adapters:
        told["adapters"] = sorted([one.lora_name, *weights.identity(one.lora_path, whole=options.whole)] for one in adapters)
    return {name: value for name, value in told.items() if value not in (None, "", "auto", "{}")}


def model_of(config, options):
    """Identity of the model. Raises ValueError if files of the model cannot be read."""
    model, told = get_model(), special_settings(options)
    name, revision = (options.model, model.revision) if options.model else weights_of(model.model_path, model.revision, options)
    if name == model.model_path:  # its files are not on this machine
        name = config.model_name
    if revision:
        told["revision"] = revision
    return {"model": name, "tag": options.extra_backend_tag, **({"settings": told} if told else {})}


def stages_of(pool, config):
    """Position of this rank in pipeline and context parallelism, whose ranks have different bytes. Pools other than the KV cache count
    layers from 0 in every stage."""
    layers = isinstance(pool, (MHATokenToKVPoolHost, MLATokenToKVPoolHost))
    return {"layers": [pool.start_layer, pool.end_layer, pool.layer_num] if layers else None,
            "pp": None if layers or config.pp_size == 1 else [config.pp_rank, config.pp_size],
            "cp": None if config.attn_cp_size == 1 else [config.attn_cp_rank, config.attn_cp_size]}


def buffers_of(pool):
    """Returns the pool's tensors."""
    told = pool.get_hybrid_pool_buffer() if hasattr(pool, "get_hybrid_pool_buffer") else [pool.kv_buffer]
    return [buffer for buffer in told if buffer is not None]


def plan_of(pool, name, config, options, flat=False):
    """Returns the Plan of a host pool. flat: a page is one value. Raises ValueError with the reason if the pool cannot be stored."""
    page = pool.page_size or 1
    try:
        pieces = pages_probed(pool.get_page_buffer_meta, page, pool.size // page)
    except (ValueError, NotImplementedError, AssertionError, AttributeError) as error:
        raise ValueError(f"pool {name} ({type(pool).__name__}, layout {pool.layout}) cannot be stored: {error}") from error
    identity = {**model_of(config, options), **stages_of(pool, config), "pool": str(name), "page": page,
                "dtypes": sorted({str(buffer.dtype) for buffer in buffers_of(pool)}),
                **({"format": tag} if (tag := getattr(pool, "storage_format_tag", None)) else {})}
    if isinstance(pool, MHATokenToKVPoolHost):
        return mha_plan(pool, name, config, options, identity, pieces, flat)
    order = ORDERS[pool.layout] if isinstance(pool, MLATokenToKVPoolHost) and pool.layout in ORDERS else pool.layout
    # As one row, pages of both layouts have the same bytes; only the number of runs differs.
    lengths = sum(length for _, _, length in pieces) if order == "layer token" else [length for _, _, length in pieces]
    identity.update(kind=type(pool).__name__, order=order, lengths=lengths)
    shared = isinstance(pool, MLATokenToKVPoolHost) or (config.is_mla_model and name != PoolName.MAMBA)
    return Plan(identity, ["" if shared else f"/rank{config.tp_rank}of{config.tp_size}"], page, pool.size, in_a_row(pieces))


def mha_plan(pool, name, config, options, identity, pieces, flat):
    first, total = heads_of(pool, name, config, options)
    slices = slice_count(pool, total, config, flat)
    heads = pool.head_num // slices
    identity.update(kind="mha", order=ORDERS[pool.layout], heads=total, dims=[pool.head_dim, pool.v_head_dim])
    suffixes = [f"/heads{at}-{at + heads}" for at in range(first, first + pool.head_num, heads)]
    if pool.layout == "page_head" and slices > 1:
        cut = pages_probed(lambda indices: pool.get_split_heads_page_buffer_meta(indices, slices), pool.page_size,
                           pool.size // pool.page_size)
        rows = [row for at in range(0, len(cut), 2) for row in in_a_row(cut[at:at + 2])]
    else:
        rows = slices_of(pool, pieces, slices)
    return Plan(identity, suffixes, pool.page_size, pool.size, rows)
