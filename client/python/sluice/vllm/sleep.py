"""Hooks into vLLM's sleep mode, which frees the caches' memory without notifying the connector.

The hooks wrap vLLM's back end of the sleep mode. Swappers must unmap the memory before it is freed, else it stays allocated. After the
sleep other memory is at the same addresses."""

CACHE_TAG = "kv_cache"  # vLLM's name of the caches' memory


def watch(backend, rest, wake):
    """Makes this class of back ends call rest() before it frees the caches' memory, and wake() when the memory exists again."""
    suspend, discard, resume = backend.suspend, backend.discard, backend.resume

    def suspend_after(self, *args, **kwargs):
        rest()
        return suspend(self, *args, **kwargs)

    def discard_after(self, tags):
        if CACHE_TAG in tags:
            rest()
        return discard(self, tags)

    def resume_before(self, tags=None):
        done = resume(self, tags)
        if tags is None or CACHE_TAG in tags:
            wake()
        return done

    backend.suspend, backend.discard, backend.resume = suspend_after, discard_after, resume_before
