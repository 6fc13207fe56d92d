"""Runs in vLLM's environment: one engine with a tiny model, controlled by lines of JSON.

Arguments: one JSON object, whose fields are read in engine_make(). Commands: generate, first_seconds, reset, model.
"""

import os
import signal
import time

from serve import serve

HIT_COUNTERS = {"vllm:external_prefix_cache_hits": "hits", "vllm:external_prefix_cache_queries": "queried",
                "vllm:prefix_cache_hits": "local_hits", "vllm:mooncake_store_operation_failed_keys": "failed_keys",
                "vllm:sluice_load_failures": "failed_keys", "vllm:sluice_stored_blocks": "stored_blocks", "vllm:sluice_loaded_blocks": "loaded_blocks",
                "vllm:sluice_dropped_blocks": "dropped_blocks", "vllm:sluice_layer_waits": "layer_waits",
                "vllm:sluice_handovers_sent": "sent", "vllm:sluice_handovers_received": "received",
                "vllm:sluice_handover_receive_failures": "receive_failures", "vllm:sluice_handovers_refused": "refused",
                "vllm:sluice_handover_receive_seconds": "receive_ms", "vllm:sluice_hints_refused": "hints_refused"}
SCALES = {"receive_ms": 1000}
RESET_SECONDS = 30
VOCABULARY = 1000
SIZES = {"vocab_size": VOCABULARY, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4, "num_attention_heads": 4,
         "num_key_value_heads": 2, "head_dim": 64, "max_position_embeddings": 8192, "tie_word_embeddings": False,
         "bos_token_id": 1, "eos_token_id": 2}


def model_make(kind, directory):
    """A model with random weights. hybrid: every other layer sees a sliding window; states: has a convolution."""
    import torch
    import transformers

    torch.manual_seed(2 if "another seed" in kind else 1)
    if kind.startswith("llama"):
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES))
    elif kind == "states":
        sizes = {name: size for name, size in SIZES.items() if name != "head_dim"}
        model = transformers.Lfm2ForCausalLM(transformers.Lfm2Config(
            **{**sizes, "tie_word_embeddings": True}, conv_bias=False, conv_L_cache=3, block_auto_adjust_ff_dim=False,
            block_dim=SIZES["hidden_size"], conv_dim=SIZES["hidden_size"],  # vLLM requires these
            layer_types=["conv", "full_attention"] * 2))
    else:
        model = transformers.Gemma3ForCausalLM(transformers.Gemma3TextConfig(
            **{**SIZES, "tie_word_embeddings": True}, query_pre_attn_scalar=64, sliding_window=256,
            layer_types=["sliding_attention", "full_attention"] * 2))
    # Larger weights than a fresh model's: otherwise its logits are so flat that every prompt has the same answer.
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if weights.dim() > 1:
                weights.normal_(0, 0.06)
    model.float().save_pretrained(directory)
    tokenizer_make().save_pretrained(directory)


def tokenizer_make():
    """A word for each token: servers need one."""
    import tokenizers
    import transformers

    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({f"w{i}": i for i in range(VOCABULARY)}, unk_token="w0"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=words, bos_token="w1", eos_token="w2", unk_token="w0")


def engine_make(told):
    from vllm import LLM
    from vllm.config import KVEventsConfig

    transfer = None
    if told.get("connector"):
        transfer = {"kv_connector": "MooncakeStoreConnector", "kv_role": "kv_both",
                    "kv_load_failure_policy": told.get("policy", "recompute"),
                    "kv_connector_extra_config": told.get("extra", {})}
    if told.get("connector") == "native":
        transfer.update(kv_connector="SluiceConnector", kv_connector_module_path="sluice.vllm")
    if told.get("connector") == "tier":
        transfer["kv_connector"] = "OffloadingConnector"
    more = told.get("more", {})
    if "kv_events_config" in more:
        more["kv_events_config"] = KVEventsConfig(**more["kv_events_config"])
    # float32 and greedy: a prefix that was loaded gives the tokens of one that was computed.
    engine = LLM(model=told["model"], skip_tokenizer_init=True, dtype="float32", enforce_eager=True, max_model_len=told.get("length", 6144),
                 max_num_seqs=16, tensor_parallel_size=told.get("ranks", 1), kv_transfer_config=transfer, disable_log_stats=False,
                 pipeline_parallel_size=told.get("stages", 1), enable_prefix_caching=True, seed=1, **more)
    if told.get("stages", 1) > 1:
        engine.collective_rpc(stage_warm)
    return engine


def stage_warm(worker):
    """On CPUs vLLM creates the tensors that a stage gets from the one before only in a run that it skips with enforce_eager."""
    worker.model_runner.profile_run()


def counters(engine):
    found = dict.fromkeys(HIT_COUNTERS.values(), 0)
    for metric in engine.get_metrics():
        if metric.name in HIT_COUNTERS:
            name = HIT_COUNTERS[metric.name]
            found[name] += int(metric.value * SCALES.get(name, 1))
    return found


def sampling(token_count, transfer=None):
    from vllm import SamplingParams

    return SamplingParams(temperature=0.0, max_tokens=token_count, ignore_eos=True, detokenize=False,
                          extra_args={"kv_transfer_params": transfer} if transfer else None)


def generate_named(engine, asked, names, traced):
    """As servers do: each request has the name that its client gave it, and its trace context."""
    order, outputs = {name: at for at, name in enumerate(names)}, []
    for name, (prompt, how) in zip(names, asked):
        engine.llm_engine.add_request(name, prompt, how, trace_headers={"traceparent": traced})
    while engine.llm_engine.has_unfinished_requests():
        outputs += [output for output in engine.llm_engine.step() if output.finished]
    return sorted(outputs, key=lambda output: order[output.request_id])


def generate(engine, prompts, tokens=8, together=True, transfer=None, names=None, traced=None, **_):
    """Answers with the tokens, the time to the first one of each prompt (s), and the counters. transfer: of each prompt its
    kv_transfer_params or None; the answer has what the engine returns."""
    before, began = counters(engine), time.monotonic()
    asked = [({"prompt_token_ids": prompt}, sampling(tokens, told)) for prompt, told in zip(prompts, transfer or [None] * len(prompts))]
    outputs = []
    if names:
        outputs = generate_named(engine, asked, names, traced)
    for batch in [] if names else [asked] if together else [[one] for one in asked]:
        outputs += engine.generate([prompt for prompt, _ in batch], [how for _, how in batch], use_tqdm=False)
    seconds = time.monotonic() - began
    after = counters(engine)
    return {"tokens": [list(output.outputs[0].token_ids) for output in outputs], "seconds": seconds,
            "first_token_s": [output.metrics.first_token_latency for output in outputs],
            "transfer": [output.kv_transfer_params for output in outputs],
            **{name: after[name] - before[name] for name in after}}


def first_seconds(engine, prompts, lasting_s, tokens=1, **_):
    """Runs one prompt after the other for this time. Answers with the time of each, and when it began after the first."""
    times, starts, first_s = [], [], time.monotonic()
    for prompt in prompts:
        began = time.monotonic()
        if began > first_s + lasting_s:
            break
        starts.append(began - first_s)
        engine.generate([{"prompt_token_ids": prompt}], sampling(tokens), use_tqdm=False)
        times.append(time.monotonic() - began)
    return {"times": times, "starts": starts, "all": len(times) == len(prompts)}


def rest(engine, lasting_s, **_):
    """Does nothing for this time, in which the engine stores what it stores after its answers."""
    time.sleep(lasting_s)
    return {}


def reset(engine, **_):
    """Clears the engine's own prefix cache, after waiting for blocks that are still being stored."""
    end_s = time.monotonic() + RESET_SECONDS
    while not engine.reset_prefix_cache():
        if time.monotonic() > end_s:
            return {"error": f"reset_prefix_cache refuses for {RESET_SECONDS} s"}
        time.sleep(0.1)
    return {}


COMMANDS = {"generate": generate, "first_seconds": first_seconds, "rest": rest, "reset": reset}


def start(told):
    # Its session has only vLLM's processes; all of them end when this one is ended.
    signal.signal(signal.SIGTERM, lambda *_: os.killpg(0, signal.SIGKILL))
    if "make" in told:
        model_make(told["make"], told["model"])
        return None, {}
    began = time.monotonic()
    return engine_make(told), {"seconds": time.monotonic() - began}


def main():
    serve(start, lambda engine, name, **arguments: COMMANDS[name](engine, **arguments), lambda engine: None)


if __name__ == "__main__":
    main()
