"""Where the blocks of vLLM's caches lie, in the terms of an engine of Sluice: parts, layers, runs. Pure.

vLLM shows the cache of a layer as [blocks, heads, states, content], with strides that its layout decides. A part is a slice
of KV heads, and of layers where pipelines are to share blocks (stages.py). What is stored of a part is
[layer][head][state][content], whatever the layout: so ranks of TP=a read what ranks of TP=b wrote."""

import itertools
from typing import NamedTuple

from sluice import Layer

from .stages import slices_here

PARTS_MAX = 64
POOLS_MAX = 8
STATES = ("state", "states")  # kinds of groups: Mamba, linear attention


class Cache(NamedTuple):
    """The cache of a layer on this rank, or one of its tensors. Lengths, offset and strides in bytes."""

    name: str
    base: int         # address of the allocation
    base_bytes: int
    offset: int       # of the first block in the allocation
    shape: tuple      # blocks (of the kernel: several may make one of the manager), heads, states, bytes of a state
    strides: tuple    # of blocks, heads, states; a state is one run


class Group(NamedTuple):
    """A group of layers with one table of blocks."""

    index: int        # among vLLM's groups
    kind: str         # "full", "window", "state" (vLLM says which block has one at which boundary) or "states" (every block has one)
    block_tokens: int
    window: int       # tokens; 0 of full attention
    layers: tuple     # names
    heads: int        # KV heads on a rank; 1 of latent attention
    shards: int       # ranks with bytes of their own; other ranks have the same as one of these
    form: str = ""    # of states: what gives their bytes a meaning


class Class(NamedTuple):
    """Groups that are found, loaded and evicted by one rule: a registration of its own."""

    name: str
    block_tokens: int
    window_blocks: int  # 0: a prefix needs all blocks; else its last ones, 1 of states
    groups: tuple

    @property
    def offered(self):
        """Whether vLLM tells which blocks can be stored: those of a position change."""
        return self.groups[0].kind == "state"


def classes_of(groups):
    """[Class], those of full attention first. A registration has POOLS_MAX pools at most, a pool a group."""
    rules = {}
    for group in groups:
        state = group.kind if group.kind in STATES else ""
        window = 1 if state else -(-(group.window - 1) // group.block_tokens) if group.kind == "window" else 0
        rules.setdefault((window, group.block_tokens, state), []).append(group)
    classes = []
    for (window, tokens, state), members in sorted(rules.items()):
        for first in range(0, len(members), POOLS_MAX):
            name = f"{state}{tokens}" if state else f"window{window}x{tokens}" if window else f"full{tokens}"
            classes.append(Class(f"{name}-{first // POOLS_MAX}" if first else name, tokens, window,
                                 tuple(members[first:first + POOLS_MAX])))
    return classes


def parts_of(group, wanted=0, slices=1):
    """Parts of a slice of layers in the group's pool: as many as the whole model has KV heads, or as many as are wanted. Of all
    slices PARTS_MAX at most."""
    total, most = group.heads * group.shards, PARTS_MAX // slices
    fits = [parts for parts in range(group.shards, min(total, most) + 1) if total % parts == 0 and parts % group.shards == 0]
    if not fits:
        raise ValueError(f"{group.shards} ranks with KV heads of their own, {slices} slices of layers: {PARTS_MAX} parts at most")
    if wanted and total == 1:
        return 1  # all ranks have the same bytes
    if wanted and wanted not in fits:
        raise ValueError(f"parts: {wanted}; {total} KV heads on {group.shards} ranks go into {', '.join(map(str, fits))}")
    return wanted or fits[-1]


def first_part(group, split, rank, ranks, first_slice=0):
    """The first part that a rank of tensor parallelism has. Ranks with the same heads stand side by side."""
    return first_slice * split.heads + rank * group.shards // ranks * (split.heads // group.shards)


def runs_of(dimensions, run_bytes):
    """Folds (count, stride) pairs, outermost first, over a run: (bytes of a run, what is left of the dimensions)."""
    left = []
    for count, stride in reversed(dimensions):
        if count == 1:
            continue
        if not left and stride == run_bytes:
            run_bytes *= count
        elif left and left[0][0] * left[0][1] == stride:
            left[0] = (left[0][0] * count, left[0][1])
        else:
            left.insert(0, (count, stride))
    return run_bytes, left


def pieces_of(cache, block_count, first_head, head_count):
    """[(offset, piece, fragment, fragment_stride)] of these heads in a block, in the order in which they are stored."""
    kernel_blocks, heads, states, state_bytes = cache.shape
    if kernel_blocks % block_count or first_head + head_count > heads:
        raise ValueError(f"{cache.name}: {kernel_blocks} blocks of {heads} heads do not make {block_count} blocks")
    ratio = kernel_blocks // block_count
    block, head, state = cache.strides
    run, left = runs_of([(head_count, head), (ratio, block), (states, state)], state_bytes)
    fragments = left[-1:]  # the innermost dimension is a row of runs; the others are pieces of their own
    found = []
    for at in itertools.product(*(range(count) for count, _ in left[:-1])):
        offset = cache.offset + first_head * head + sum(i * stride for i, (_, stride) in zip(at, left[:-1]))
        if fragments:
            found.append((offset, run * fragments[0][0], run, fragments[0][1]))
        else:
            found.append((offset, run, 0, 0))
    return found


def layers_apart(group, caches):
    """The group's layers without those that show the cache of another one. caches: {name: (Cache, ...)}"""
    first = {}
    for name in group.layers:
        first.setdefault((caches[name][0].base, caches[name][0].offset), name)
    return list(first.values())


def layers_of(group, split, caches, block_count):
    """([Layer], [address]) of a group's pool on this rank, slice by slice; parts are counted from the rank's first one."""
    here = split.heads // group.shards
    heads = group.heads // here
    layers, addresses = [], []
    slices = slices_here(split, group.layers)
    for (number, names), part in itertools.product(slices, range(here)):
        for cache in itertools.chain.from_iterable(caches[name] for name in names):
            stride = cache.strides[0] * (cache.shape[0] // block_count)
            for offset, piece, fragment, fragment_stride in pieces_of(cache, block_count, part * heads, heads):
                extent = piece if fragment == 0 else (piece // fragment - 1) * fragment_stride + fragment
                length = (block_count - 1) * stride + extent
                if offset + length > cache.base_bytes:
                    raise ValueError(f"{cache.name}: its blocks end {offset + length - cache.base_bytes} bytes behind its memory")
                at = (number - slices[0][0]) * split.heads + part
                layers.append(Layer(offset, length, stride, piece, at, fragment, fragment_stride))
                addresses.append(cache.base)
    return layers, addresses
