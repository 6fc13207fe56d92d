"""Facts about vLLM's configuration and tensors that the connector needs."""

import hashlib
import json

import sluice
from sluice import weights

from .layers import Computed
from .layout import STATES, Cache, Group
from .sleep import watch
from .stages import cuts_of as stages_apart

KINDS = {"full_attention": "full", "mla_attention": "full", "sink_full_attention": "full", "sliding_window": "window",
         "sliding_window_mla": "window"}
STATE_MODES = {"align": "state", "all": "states"}  # of mamba_cache_mode


def groups_of(vllm_config, kv_cache_config, kind_of):
    """Returns [Group] for the groups whose blocks have hashes. kind_of: vLLM's get_kv_cache_spec_kind. Raises ValueError for unsupported
    caches, since then no block of the model could be loaded."""
    parallel = vllm_config.parallel_config
    for name in ("decode_context_parallel_size", "prefill_context_parallel_size"):
        if getattr(parallel, name, 1) > 1:
            raise ValueError(f"SluiceConnector: {name} {getattr(parallel, name)} is not supported: a rank has some tokens of each block then, "
                             "but a part is a slice of heads and layers")
    ranks = parallel.tensor_parallel_size
    groups = []
    for index in kv_cache_config.prefix_cacheable_group_ids:
        group = kv_cache_config.kv_cache_groups[index]
        spec = group.kv_cache_spec
        layers = getattr(spec, "kv_cache_specs", None)
        specs = [layers[name] for name in group.layer_names or layers] if layers else [spec]  # a stage may have none of these layers
        told = getattr(kind_of(spec), "value", kind_of(spec))
        if told == "mamba":
            groups.append(states_of(index, group, specs[0], ranks))
            continue
        kind = KINDS.get(told)
        if kind is None:
            raise ValueError(f"SluiceConnector: caches of the kind {kind_of(spec)} are not supported")
        heads = {one.num_heads for one in specs}
        if len(heads) != 1:
            raise ValueError(f"SluiceConnector: layers of {sorted(heads)} heads in one group are not supported")
        window = getattr(specs[0], "sliding_window", None) or 0
        extra = getattr(specs[0], "extra_retained_tokens", 0)
        groups.append(Group(index, kind, spec.block_size, window + extra if kind == "window" else 0, tuple(group.layer_names), heads.pop(),
                            shards_of(specs[0], ranks, vllm_config.model_config.get_total_num_kv_heads())))
    return groups


def states_of(index, group, spec, ranks):
    """A Group of Mamba or linear attention. A rank's share of a state is one part, since convolutions are not only cut at heads."""
    kind = STATE_MODES.get(spec.mamba_cache_mode)
    if kind is None:
        raise ValueError(f"SluiceConnector: mamba_cache_mode {spec.mamba_cache_mode!r} keeps no states of prefixes; 'align' and 'all' do")
    form = f"{getattr(spec.mamba_type, 'value', spec.mamba_type)} {spec.shapes} {spec.dtypes}"
    return Group(index, kind, spec.block_size, 0, tuple(group.layer_names), 1, 1 if spec.tp_replicated else ranks, form)


def load_check(settings, groups):
    """Raises ValueError if a step cannot wait for its loads. With several groups, failed blocks could not be reported to vLLM; with a
    window, the load itself waits for running steps."""
    if settings.load == "sync" and (len(groups) > 1 or groups[0].kind != "full"):
        raise ValueError("kv_connector_extra_config: load: 'sync' supports only models with one group of caches, with full attention")


def states_warning(groups, cut_tokens, name):
    """Returns a warning if the scheduler ends steps, every cut_tokens, between the boundaries at which states are kept; None: it does
    not. vLLM's workers enlarge blocks until a state fits, but on a CPU its scheduler keeps 128 tokens."""
    block_tokens = max((group.block_tokens for group in groups if group.kind == "state"), default=cut_tokens)
    if cut_tokens % block_tokens == 0:
        return None
    return (f"{name}: few or no prefixes will be found, and storing them is useless: its states are kept every {block_tokens} "
            f"tokens, but vLLM ends its steps every {cut_tokens}. Start the engine with --block-size {block_tokens}")


def shards_of(spec, ranks, model_heads):
    """Number of ranks with distinct bytes: with fewer KV heads than ranks, several ranks have the same."""
    if spec.max_tp_shards is not None:
        return min(ranks, spec.max_tp_shards)
    if spec.num_heads == 1 and model_heads < ranks:
        return model_heads
    return ranks


def caches_of(groups, tensors):
    """Returns {name: (Cache, ...)} for torch's tensors [blocks, heads, states, content]."""
    caches = {}
    for group in groups:
        for name in group.layers:
            tensor = tensors[name]
            if tensor.dim() != 4 or tensor.stride(3) != 1:
                raise ValueError(f"{name}: a cache of the shape {tuple(tensor.shape)}, strides {tensor.stride()}, is not supported")
            item = tensor.element_size()
            storage = tensor.untyped_storage()
            caches[name] = (Cache(name, storage.data_ptr(), storage.nbytes(), tensor.data_ptr() - storage.data_ptr(),
                                  (*tensor.shape[:3], tensor.shape[3] * item), tuple(stride * item for stride in tensor.stride()[:3])),)
    return caches


def mark_of(tensor):
    """Returns a factory of marks that report whether the work so far is done (layers.Worker). On a CPU it is always done."""
    if not tensor.is_cuda:
        return Computed
    import torch

    def mark():
        event = torch.cuda.Event()
        event.record()
        return event

    return mark


def cuts_of(vllm_config, settings):
    """Returns where slices of layers begin, except the first."""
    stages = vllm_config.parallel_config.pipeline_parallel_size
    layers = vllm_config.model_config.get_total_num_hidden_layers()
    own = None
    if stages > 1:
        from vllm.distributed.utils import get_pp_indices  # VLLM_PP_LAYER_PARTITION may set other ends

        own = [get_pp_indices(layers, stage, stages)[1] for stage in range(stages)]
    return stages_apart(layers, stages, settings.stages, own)


def of_all_stages(here, stages, group_of_stages):
    """Exchanges `here` among the stages, which all call it, and returns a list by stage. group_of_stages: vLLM's get_pp_group."""
    if stages == 1:
        return [here]
    import torch

    told = [None] * stages
    torch.distributed.all_gather_object(told, here, group=group_of_stages().cpu_group)
    return told


def stages_check(classes, told):
    """Raises ValueError if a stage has no layer of a class: it could not register then, and no op of the class could start. The second
    argument has for each stage {group: (names, ...)}."""
    for group in classes:
        for number, stage in enumerate(told):
            if not any(stage[member.index][0] for member in group.groups):
                raise ValueError(f"SluiceConnector: stage {number} of the pipeline has no layer of the class {group.name}: not supported")


def sleep_watch(model_config, registered):
    """Ends the registrations while vLLM sleeps."""
    if getattr(model_config, "enable_sleep_mode", False):
        from vllm.device_allocator.sleep_mode_backend import SleepModeBackendFactory

        watch(SleepModeBackendFactory.get_backend_class(model_config.sleep_mode_backend), registered.rest, registered.wake)


def adapters_watch(adapters):
    """Watches loads of adapters. In time, since the engine makes its connector before it loads adapters."""
    from vllm.v1.engine.core import EngineCore

    adapters.watch(EngineCore)


def models_of(vllm_config, settings, classes, splits, interiors):
    """Returns {class: model}: everything that determines what the stored bytes mean, independent of ranks. Hashes cover adapters and
    images. splits: {group: Split}; interiors: {group: order of bytes within a head}. Raises ValueError if files of the model cannot be
    read."""
    model, cache = vllm_config.model_config, vllm_config.cache_config
    name, revision = (settings.model, model.revision or "") if settings.model else weights_of(vllm_config, model, settings)
    apart = special_settings(vllm_config, settings)

    def layout(group):
        stored = [[one.kind, one.window, [len(names) for names in splits[one.index].slices], one.heads * one.shards, splits[one.index].heads,
                   interiors[one.index], *([one.form] if one.form else [])] for one in group.groups]
        return digest("vllm", json.dumps([cache.cache_dtype, getattr(cache, "prefix_caching_hash_algo", ""), stored, *apart], sort_keys=True,
                                         default=str))

    shape = getattr(model, "hf_text_config", None) or model.hf_config
    rope = json.dumps([getattr(shape, "rope_theta", None), getattr(shape, "rope_parameters", None), getattr(shape, "rope_scaling", None),
                       *long_rope(model, shape)], sort_keys=True, default=str)
    return {group.name: {"name": name, "revision": revision, "dtype": str(model.dtype), "layout": layout(group), "rope": digest(rope),
                         "quantisation": str(model.quantization or "")} for group in classes}


def weights_of(vllm_config, model, settings):
    """(name, revision) of the weights that vLLM loaded."""
    load = getattr(vllm_config, "load_config", None)
    return weights.identity(model.model, model.revision, settings.whole, load_format(load), getattr(load, "download_dir", None))


def load_format(load):
    told = getattr(load, "load_format", "auto")
    return str(getattr(told, "value", told))


def special_settings(vllm_config, settings):
    """Rare settings that change stored bytes: layers with a type of their own, a special format of weights, overrides of the model's
    configuration, and a draft model, whose layers are in the same blocks."""
    model, apart = vllm_config.model_config, []
    skipped = getattr(vllm_config.cache_config, "kv_cache_dtype_skip_layers", None)
    if skipped:
        apart.append({"skipped": sorted(skipped)})
    if getattr(model, "hf_overrides", None):
        apart.append({"overrides": model.hf_overrides})
    load = getattr(vllm_config, "load_config", None)
    if load_format(load) != "auto":  # selects files of a directory with two formats, or none
        apart.append({"load": [load_format(load), getattr(load, "model_loader_extra_config", None)]})
    pictures = getattr(model, "multimodal_config", None)
    for of, names in ((model, ("hf_config_path", "config_format", "model_impl", "code_revision", "quantization_config")),
                      (pictures, ("mm_processor_kwargs", "video_pruning_rate"))):
        apart += [{name: value} for name in names if (value := getattr(of, name, None)) not in (None, "", "auto", {})]
    drafts = getattr(getattr(vllm_config, "speculative_config", None), "draft_model_config", None)
    if drafts is not None and drafts.model != model.model:  # else the draft has no layers, or the model's
        apart.append({"drafts": weights_of(vllm_config, drafts, settings)})
    return apart


def long_rope(model, shape):
    """For a model with long and short factors: which of them vLLM uses for all tokens, depending on max_model_len."""
    told = getattr(shape, "rope_parameters", None) or {}
    kinds = [told, *(one for one in told.values() if isinstance(one, dict))]  # some models have parameters for each kind of layer
    lengths = [one.get("original_max_position_embeddings") or getattr(shape, "original_max_position_embeddings", 0) for one in kinds
               if one.get("rope_type") == "longrope"]
    return [model.max_model_len > length for length in lengths]


def extra_keys(request, first, end):
    """Inputs of vLLM's block hash besides the tokens, as bytes: adapters, images, salt."""
    from vllm.v1.core.kv_cache_utils import generate_block_hash_extra_keys

    return repr(generate_block_hash_extra_keys(request, first, end, 0)[0]).encode()


def digest(*texts):
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


def pool_name(group):
    return f"{group.kind}-{group.index}"


def pool_kind(group):
    return sluice.POOL_MAMBA_STATE if group.kind in STATES else sluice.POOL_ATTENTION
