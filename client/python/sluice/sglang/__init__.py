"""Back ends of SGLang 0.5.23: HiCache's storage (SluiceHiCache) and the unified cache's linker (sluice.sglang.linker.SluiceLinker).

It imports SGLang, whose classes it derives from. README.md says how it is set up, and what is stored."""

from .hicache import SluiceHiCache

__all__ = ["SluiceHiCache"]
