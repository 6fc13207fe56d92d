"""Back ends of SGLang 0.5.23: HiCache's storage (SluiceHiCache) and the unified cache's linker (sluice.sglang.linker.SluiceLinker).

It imports SGLang, whose classes it derives from. docs/start/sglang.md says how it is set up, README.md what is stored."""

from .hicache import SluiceHiCache

__all__ = ["SluiceHiCache"]
