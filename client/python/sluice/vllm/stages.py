"""Cuts the model's layers into slices, so that pipelines of different lengths share stored blocks. Pure.

A part of a block is a slice of KV heads of a slice of layers. Layers are cut wherever a stage of an engine that shares the blocks may
end. So PP=1 and PP=2 have the same keys if they use the same cuts."""

import itertools
from typing import NamedTuple


class Split(NamedTuple):
    """How a block is split in the pool of a group. Parts are numbered [slice][heads]."""

    heads: int     # parts of a slice
    slices: tuple  # names of layers of all stages, a tuple for each slice; none is empty

    @property
    def parts(self):
        return self.heads * len(self.slices)


def stage_ends(layers, stages):
    """Number of the first layer after each stage, as vLLM distributes layers: the stages before the last get the remainder."""
    sizes = [layers // stages] * stages
    for i in range(layers % stages):
        sizes[-2 - i] += 1
    return list(itertools.accumulate(sizes))


def cuts_of(layers, stages, wanted=0, own=None):
    """Numbers of the layers at which a slice begins, except the first. wanted: pipelines with this number of stages, and with each of its
    divisors, share the blocks; 0: only those with `stages`, as this one has. own: ends of its stages, if vLLM did not choose them."""
    wanted = wanted or stages
    if wanted % stages:
        raise ValueError(f"stages: {wanted}; this pipeline has {stages}, which does not divide it")
    if wanted > layers:
        raise ValueError(f"stages: {wanted}; the model has {layers} layers")
    found = set()
    for count in range(1, wanted + 1):
        if wanted % count == 0:
            found.update(own if own and count == stages else stage_ends(layers, count))
    return tuple(sorted(found - {layers}))


def layer_number(name):
    """The first component of a name that is a number: 7 for "model.layers.7.attn"; 0 without one."""
    for word in name.split("."):
        if word.isdigit():
            return int(word)
    return 0


def slices_of(names, cuts):
    """Names grouped by slice, in their order. Layers after all others, such as a draft's, belong to the last slice."""
    ends = [*cuts, float("inf")]
    found = [tuple(name for name in names if begin <= layer_number(name) < end) for begin, end in zip([0, *cuts], ends)]
    return tuple(slice_ for slice_ in found if slice_)


def slices_here(split, layers):
    """[(number of a slice, its names)] for a stage with these layers. Raises ValueError if the stage has only part of a slice."""
    found = []
    for number, names in enumerate(split.slices):
        has = [name for name in names if name in layers]
        if has and len(has) != len(names):
            raise ValueError(f"stages: a pipeline stage ends between {has[-1]} and {next(name for name in names if name not in has)}")
        if has:
            found.append((number, names))
    return found


def first_slice(split, layers):
    """Number of the first slice of a stage with these layers; 0 if it has none."""
    return next((number for number, _ in slices_here(split, layers)), 0)


def splits_of(groups, told, heads, cuts):
    """Returns {group: Split}. The second argument has for each stage {group: (names of its layers, ...)}; heads: {group: parts of a slice}."""
    return {group.index: Split(heads[group.index], slices_of([name for stage in told for name in stage[group.index][0]], cuts))
            for group in groups}
