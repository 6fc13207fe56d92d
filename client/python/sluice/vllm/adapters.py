"""Keys of requests with an adapter (LoRA). vLLM hashes the adapter's name and path with the tokens. Here a digest of its weights replaces
them: one adapter at two paths has the same keys, two adapters at one path have not. Imports no vLLM."""

import functools
import inspect
import types
import uuid

from sluice import weights


def vllm_function(owner, name, takes, caller=None):
    """Returns the function of vLLM that is to be replaced. Raises ValueError if its parameters differ or its caller does not call it, as
    in another release of vLLM: adapters would be mistaken for each other."""
    found, calls = getattr(owner, name, None), getattr(owner, caller or name, None)
    if None in (found, calls) or [*inspect.signature(found).parameters] != takes or caller and name not in calls.__code__.co_names:
        raise ValueError(f"this vLLM has no {owner.__name__}.{name}({', '.join(takes)}) as Sluice expects it to distinguish adapters (LoRA): "
                         "install the version of vLLM that Sluice's documentation names")
    return found


class RequestProxy:
    """A proxy of a request that overrides some attributes."""

    def __init__(self, request, **own):
        self.__dict__.update(own, asked=request)

    def __getattr__(self, name):
        return getattr(self.asked, name)


class Named(RequestProxy):
    """A proxy of vLLM's request whose keys include the adapter's weights. name: of the weights; None: its blocks have no keys."""

    def __init__(self, request, name):
        adapter = types.SimpleNamespace(lora_name="", lora_path=name)
        super().__init__(request, lora_request=adapter, hashed=RequestProxy(request, lora_request=adapter, block_hashes=[]), last=None)

    @property
    def block_hashes(self):
        """As many hashes as vLLM's request has. A streaming session's request may become shorter and continue with other tokens."""
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
    """By these vLLM's own cache distinguishes adapters: an adapter that is loaded again under another number still finds its blocks."""
    return adapter.lora_name, adapter.lora_path


class Adapters:
    """Adapters and requests of an engine; one thread."""

    def __init__(self, whole):
        self.held, self.requests = weights.Held(whole), {}

    def named(self, request):
        """Returns the request, or with an adapter its proxy, which exists until end()."""
        adapter = getattr(request, "lora_request", None)
        if adapter is None:
            return request
        if request.request_id not in self.requests:
            self.requests[request.request_id] = Named(request, self.held.name(key_of(adapter), adapter.lora_path))
        return self.requests[request.request_id]

    def watch(self, core):
        """Hooks into the class of vLLM's engines to see which adapter files are loaded. Workers load others at their first request."""
        load = vllm_function(core, "add_lora", ["self", "lora_request"])

        @functools.wraps(load)
        def add_lora(engine, lora_request):
            return self.held.load(key_of(lora_request), lora_request.lora_path, lambda: load(engine, lora_request))

        core.add_lora = add_lora

    def hashed(self, utils):
        """Makes vLLM's own hashes include an adapter's weights besides its name and path. utils: the module that computes the hashes."""
        told = inspect.unwrap(vllm_function(utils, "_gen_lora_extra_hash_keys", ["request"], "generate_block_hash_extra_keys"))

        @functools.wraps(told)
        def keys(request):
            found = told(request)
            if found and not hasattr(request, "sluice_weights"):  # weights without a name: a random one, so that no request finds these blocks
                adapter = request.lora_request
                request.sluice_weights = self.held.name(key_of(adapter), adapter.lora_path) or str(uuid.uuid4())
            return [(*one, request.sluice_weights) for one in found]

        utils._gen_lora_extra_hash_keys = keys

    def end(self, request_id):
        self.requests.pop(request_id, None)
