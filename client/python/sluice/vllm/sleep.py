"""Memory that goes away and comes back: vLLM's sleep mode, of which a connector hears nothing.

Whatever puts memory to sleep, vLLM calls its back end of the sleep mode. What it maps for us has to be let go of before, else the
memory would not become free; and where it comes back it is other memory, though at the same addresses."""

CACHE_TAG = "kv_cache"  # vLLM's name of the caches' memory


def watch(backend, rest, wake):
    """Has rest() called before a class of back ends takes the caches' memory away, and wake() when it is there again."""
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
