"""Requests with an adapter (LoRA). vLLM hashes the adapter's name and path with the tokens; its weights take their place here, so that one
adapter at two paths is one, and two at one path are two. No vLLM in it."""

import functools
import inspect
import types
import uuid

from sluice import weights


def of_vllm(owner, name, takes, caller=None):
    """The function of vLLM in whose place ours comes. Raises ValueError where another vLLM has it otherwise, or its caller calls another one:
    adapters would be taken for each other."""
    found, calls = getattr(owner, name, None), getattr(owner, caller or name, None)
    if None in (found, calls) or [*inspect.signature(found).parameters] != takes or caller and name not in calls.__code__.co_names:
        raise ValueError(f"this vLLM has no {owner.__name__}.{name}({', '.join(takes)}) that Sluice knows, by which adapters (LoRA) are told apart: "
                         "install the version of vLLM that Sluice's page of it names")
    return found


class Seen:
    """A request with some attributes of its own."""

    def __init__(self, request, **own):
        self.__dict__.update(own, asked=request)

    def __getattr__(self, name):
        return getattr(self.asked, name)


class Named(Seen):
    """vLLM's request with keys that its adapter's weights are part of. name: theirs; None: its blocks have no keys."""

    def __init__(self, request, name):
        adapter = types.SimpleNamespace(lora_name="", lora_path=name)
        super().__init__(request, lora_request=adapter, hashed=Seen(request, lora_request=adapter, block_hashes=[]), last=None)

    @property
    def block_hashes(self):
        """As many as vLLM's request has. That of a streaming session may get shorter, and go on with other tokens."""
        theirs, ours = self.asked.block_hashes, self.hashed.block_hashes
        if self.lora_request.lora_path is None:
            return []
        if ours and (len(theirs) < len(ours) or theirs[len(ours) - 1] != self.last):
            ours.clear()
        if len(theirs) > len(ours):
            ours.extend(self.asked._block_hasher(self.hashed))
            del ours[len(theirs):]
            self.last = theirs[-1]
        return ours


def key_of(adapter):
    """What vLLM's own cache tells adapters apart by: one that is loaded again under another number still gets the blocks of before."""
    return adapter.lora_name, adapter.lora_path


class Adapters:
    """The requests of an engine; one thread."""

    def __init__(self, whole):
        self.held, self.requests = weights.Held(whole), {}

    def named(self, request):
        """The request, or what stands for it until end()."""
        adapter = getattr(request, "lora_request", None)
        if adapter is None:
            return request
        if request.request_id not in self.requests:
            self.requests[request.request_id] = Named(request, self.held.name(key_of(adapter), adapter.lora_path))
        return self.requests[request.request_id]

    def watch(self, core):
        """Has the class of vLLM's engines say which files its workers load. What it does not load so they load for the first request."""
        load = of_vllm(core, "add_lora", ["self", "lora_request"])

        @functools.wraps(load)
        def add_lora(engine, lora_request):
            return self.held.load(key_of(lora_request), lora_request.lora_path, lambda: load(engine, lora_request))

        core.add_lora = add_lora

    def hashed(self, utils):
        """Has vLLM's own hashes say the weights of an adapter beside its name and path. utils: the module that makes them."""
        told = inspect.unwrap(of_vllm(utils, "_gen_lora_extra_hash_keys", ["request"], "generate_block_hash_extra_keys"))

        @functools.wraps(told)
        def keys(request):
            found = told(request)
            if found and not hasattr(request, "sluice_weights"):  # weights without a name: nobody finds what is hashed with this one
                adapter = request.lora_request
                request.sluice_weights = self.held.name(key_of(adapter), adapter.lora_path) or str(uuid.uuid4())
            return [(*one, request.sluice_weights) for one in found]

        utils._gen_lora_extra_hash_keys = keys

    def end(self, request_id):
        self.requests.pop(request_id, None)
