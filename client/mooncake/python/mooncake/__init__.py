"""The Python package `mooncake` of Sluice: Mooncake's store for inference engines, served by a node of Sluice.

    mooncake.store                   MooncakeDistributedStore, ReplicateConfig, ...
    mooncake.engine                  TransferEngine, reduced to what the store needs
    mooncake.mooncake_config         MooncakeConfig, from a file or the environment
    mooncake.async_store             the store for asyncio
    mooncake.http_metadata_server    a small metadata service, for engines that do not use P2PHANDSHAKE
    mooncake.cli                     runs the programs in the package

Other distributions may add modules to the package. `BufferPool` and `RegisteredBufferPool` of Mooncake do not exist yet: importing them
raises ImportError.
"""

import pkgutil as _pkgutil

__path__ = _pkgutil.extend_path(__path__, __name__)
