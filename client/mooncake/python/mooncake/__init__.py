"""The Python package `mooncake` of Sluice: what inference engines import as Mooncake's store, served by a node of Sluice.

    mooncake.store                   MooncakeDistributedStore, ReplicateConfig, ...
    mooncake.engine                  TransferEngine, as far as the store needs it
    mooncake.mooncake_config         MooncakeConfig, from a file or the environment
    mooncake.async_store             the store for asyncio
    mooncake.http_metadata_server    a small service of metadata, for those who do not use P2PHANDSHAKE
    mooncake.cli                     the programs that the package brings

Other distributions may add modules to the package. Of Mooncake's names `BufferPool` and `RegisteredBufferPool` are not
offered yet: importing them from here is an ImportError.
"""

import pkgutil as _pkgutil

__path__ = _pkgutil.extend_path(__path__, __name__)
