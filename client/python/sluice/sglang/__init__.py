"""Back ends for SGLang 0.5.23: HiCache's storage (SluiceHiCache) and the unified cache's linker (sluice.sglang.linker.SluiceLinker).

Imports SGLang, whose classes it derives from. docs/start/sglang.md describes the setup, README.md what is stored."""

from .hicache import SluiceHiCache

__all__ = ["SluiceHiCache"]
