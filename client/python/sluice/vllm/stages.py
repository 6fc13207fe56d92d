"""Which layers of the model are a slice of their own, so that pipelines of several lengths share what they store. Pure.

A part of a block is a slice of KV heads of a slice of layers. Layers are cut wherever a stage of an engine that shares the blocks
may end. So the keys of PP=1 are those of PP=2, if both have the same cuts."""

import itertools
from typing import NamedTuple


class Split(NamedTuple):
    """How a block is split in the pool of a group. Parts are numbered [slice][heads]."""

    heads: int     # parts of a slice
    slices: tuple  # names of layers of all stages, one tuple a slice; none is empty

    @property
    def parts(self):
        return self.heads * len(self.slices)


def stage_ends(layers, stages):
    """The first layer behind each stage, as vLLM gives them out: what is left over goes to the stages before the last."""
    sizes = [layers // stages] * stages
    for i in range(layers % stages):
        sizes[-2 - i] += 1
    return list(itertools.accumulate(sizes))


def cuts_of(layers, stages, wanted=0, own=None):
    """Numbers of layers at which a slice begins, but for the first. wanted: pipelines of so many stages, and of all numbers that
    divide it, share the blocks; 0: those with as many stages as this one, `stages`. own: ends of this one's stages where they are not
    vLLM's choice."""
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
    """Of "model.layers.7.attn" 7: the first number that stands alone."""
    for word in name.split("."):
        if word.isdigit():
            return int(word)
    return 0


def slices_of(names, cuts):
    """The names, each slice's together; in each as they stand. A layer behind all others, as of a draft, is of the last slice."""
    ends = [*cuts, float("inf")]
    found = [tuple(name for name in names if begin <= layer_number(name) < end) for begin, end in zip([0, *cuts], ends)]
    return tuple(slice_ for slice_ in found if slice_)


def slices_here(split, layers):
    """[(number of the slice, its names)] of a stage with these layers. Raises ValueError when it has a slice in part."""
    found = []
    for number, names in enumerate(split.slices):
        has = [name for name in names if name in layers]
        if has and len(has) != len(names):
            raise ValueError(f"stages: a pipeline stage ends between {has[-1]} and {next(name for name in names if name not in has)}")
        if has:
            found.append((number, names))
    return found


def first_slice(split, layers):
    """Number of the first slice of a stage with these layers; 0 where it has none."""
    return next((number for number, _ in slices_here(split, layers)), 0)


def splits_of(groups, told, heads, cuts):
    """{group: Split}. told: for each stage {group: (names of its layers, ...)}; heads: {group: parts of a slice}."""
    return {group.index: Split(heads[group.index], slices_of([name for stage in told for name in stage[group.index][0]], cuts))
            for group in groups}
