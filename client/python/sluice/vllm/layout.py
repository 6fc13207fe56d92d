"""Describes the memory of vLLM's caches in the terms of a Sluice engine: parts, layers, runs. Pure.

vLLM's cache of a layer is [blocks, heads, states, content], with strides that depend on its layout. A part is a slice of KV heads, and of
layers if pipelines share blocks (stages.py). A part is stored as [layer][head][state][content] whatever the layout, so ranks of TP=a can
read what ranks of TP=b wrote."""

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
    offset: int       # from the allocation to the first block
    shape: tuple      # kernel blocks (several may make one of vLLM's blocks), heads, states, bytes of a state
    strides: tuple    # of blocks, heads, states; a state is contiguous


class Group(NamedTuple):
    """A group of layers with one table of blocks."""

    index: int        # among vLLM's groups
    kind: str         # "full", "window", "state" (vLLM reports which block has one at which boundary) or "states" (each block has one)
    block_tokens: int
    window: int       # tokens; 0 for full attention
    layers: tuple     # names
    heads: int        # KV heads on a rank; 1 for latent attention
    shards: int       # ranks with distinct bytes; each other rank has the same as one of these
    form: str = ""    # for states: type, shapes and dtypes


class Class(NamedTuple):
    """Groups whose blocks are found, loaded and evicted by one rule. A class is one registration."""

    name: str
    block_tokens: int
    window_blocks: int  # 0: a prefix needs all blocks; else only its last ones; 1 for states
    groups: tuple

    @property
    def offered(self):
        """Whether vLLM reports which blocks can be stored, since a position's block may change."""
        return self.groups[0].kind == "state"


def classes_of(groups):
    """Returns [Class], full attention first. A registration has at most POOLS_MAX pools, one for each group."""
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
    """Number of parts of a slice of layers in the group's pool: the number of KV heads of the whole model, or `wanted`. At most PARTS_MAX
    in all slices."""
    total, most = group.heads * group.shards, PARTS_MAX // slices
    fits = [parts for parts in range(group.shards, min(total, most) + 1) if total % parts == 0 and parts % group.shards == 0]
    if not fits:
        raise ValueError(f"{group.shards} ranks with KV heads of their own, {slices} slices of layers: {PARTS_MAX} parts at most")
    if wanted and total == 1:
        return 1  # all ranks have the same bytes
    if wanted and wanted not in fits:
        raise ValueError(f"parts: {wanted}; {total} KV heads on {group.shards} ranks allow {', '.join(map(str, fits))}")
    return wanted or fits[-1]


def first_part(group, split, rank, ranks, first_slice=0):
    """First part of a rank of tensor parallelism. Ranks with the same heads are adjacent."""
    return first_slice * split.heads + rank * group.shards // ranks * (split.heads // group.shards)


def runs_of(dimensions, run_bytes):
    """Merges (count, stride) pairs, outermost first, into a run where possible: (bytes of a run, remaining dimensions)."""
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
    """Returns [(offset, piece, fragment, fragment_stride)] for these heads in a block, in stored order."""
    kernel_blocks, heads, states, state_bytes = cache.shape
    if kernel_blocks % block_count or first_head + head_count > heads:
        raise ValueError(f"{cache.name}: {kernel_blocks} blocks of {heads} heads do not make {block_count} blocks")
    ratio = kernel_blocks // block_count
    block, head, state = cache.strides
    run, left = runs_of([(head_count, head), (ratio, block), (states, state)], state_bytes)
    fragments = left[-1:]  # the innermost dimension is a row of runs; each index of the others is a piece
    found = []
    for at in itertools.product(*(range(count) for count, _ in left[:-1])):
        offset = cache.offset + first_head * head + sum(i * stride for i, (_, stride) in zip(at, left[:-1]))
        if fragments:
            found.append((offset, run * fragments[0][0], run, fragments[0][1]))
        else:
            found.append((offset, run, 0, 0))
    return found


def layers_apart(group, caches):
    """The group's layers, without those that share another layer's cache. caches: {name: (Cache, ...)}"""
    first = {}
    for name in group.layers:
        first.setdefault((caches[name][0].base, caches[name][0].offset), name)
    return list(first.values())


def layers_of(group, split, caches, block_count):
    """Returns ([Layer], [address]) of a group's pool on this rank, by slice. Parts count from the rank's first one."""
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
                    raise ValueError(f"{cache.name}: its blocks end {offset + length - cache.base_bytes} bytes after the end of its memory")
                at = (number - slices[0][0]) * split.heads + part
                layers.append(Layer(offset, length, stride, piece, at, fragment, fragment_stride))
                addresses.append(cache.base)
    return layers, addresses
