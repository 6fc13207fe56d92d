"""vLLM's TieringOffloadingSpec for an engine on a CPU. vLLM's own worker of that spec copies by CUDA and refuses CPUs; this one copies
within memory. The connector, the manager and its primary tier are vLLM's."""

import time

import torch
from vllm.v1.kv_offload.base import OffloadingWorker, TransferResult
from vllm.v1.kv_offload.cpu.shared_offload_region import SharedOffloadRegion
from vllm.v1.kv_offload.tiering.spec import TieringOffloadingSpec


class CpuWorker(OffloadingWorker):
    """Copies when it is called: its bytes were computed in the step before."""

    def __init__(self, kv_caches, region):
        self.region = region
        self.blocks = [one.tensor.view(torch.int8).view(-1, one.page_size_bytes) for one in kv_caches.tensors]
        self.chunks = [region.create_next_worker_view(one.page_size_bytes) for one in kv_caches.tensors]
        self.groups = kv_caches.group_data_refs
        self.finished = []

    def copy(self, job_id, of_engine, of_tier, store):
        began, first, copied = time.monotonic(), 0, 0
        for count, refs in zip(of_engine.group_sizes, self.groups):
            at, to = (torch.from_numpy(spec.block_ids[first:first + count].astype("int64")) for spec in (of_engine, of_tier))
            for ref in refs:
                blocks, chunks = self.blocks[ref.tensor_idx], self.chunks[ref.tensor_idx]
                if store:
                    chunks[to, :ref.page_size_bytes] = blocks[at, :ref.page_size_bytes]
                else:
                    blocks[at, :ref.page_size_bytes] = chunks[to, :ref.page_size_bytes]
                copied += count * ref.page_size_bytes
            first += count
        self.finished.append(TransferResult(job_id, True, copied, time.monotonic() - began))
        return True

    def submit_store(self, job_id, src_spec, dst_spec):
        return self.copy(job_id, src_spec, dst_spec, True)

    def submit_load(self, job_id, src_spec, dst_spec):
        return self.copy(job_id, dst_spec, src_spec, False)

    def get_finished(self):
        finished, self.finished = self.finished, []
        return finished

    def wait(self, job_ids):
        """Returns at once: submitted copies have ended."""

    def shutdown(self):
        self.blocks = self.chunks = None
        self.region.cleanup()


class CpuTieringSpec(TieringOffloadingSpec):
    def get_worker(self, kv_caches):
        if self._worker is None:
            if self.blocks_per_chunk != 1 or self.config.canonical_layout:
                raise ValueError("chunks of one block, as they lie in the engine")
            region = SharedOffloadRegion(engine_id=self.config.engine_id, num_chunks=self.num_chunks, rank=self.config.parallel.rank,
                                         kv_bytes_per_chunk=self.kv_bytes_per_chunk, cpu_page_size=self.cpu_page_size_per_worker)
            self._worker = CpuWorker(kv_caches, region)
        return self._worker
