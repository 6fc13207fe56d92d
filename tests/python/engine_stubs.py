"""The parts of torch, LMCache and vLLM that Sluice's back ends import, for machines without these. tests/engines uses the real ones."""

import ctypes
import enum
import sys
import types


def module(name, **names):
    made = types.ModuleType(name)
    made.__dict__.update(names)
    sys.modules[name] = made
    return made


# ---- torch: sizes, and flat tensors of bytes over buffers ----


class Size(tuple):
    def numel(self):
        count = 1
        for dimension in self:
            count *= dimension
        return count


class Dtype:
    def __init__(self, name, itemsize):
        self.name, self.itemsize = name, itemsize

    def __repr__(self):
        return self.name


class Tensor:
    """Has its buffer's object, as torch's has, and no export of it."""

    def __init__(self, held):
        self.held = held

    def bytes(self):
        return bytes(self.held)

    def data_ptr(self):
        return 0


uint8, float16 = Dtype("torch.uint8", 1), Dtype("torch.float16", 2)
module("torch", Size=Size, uint8=uint8, float16=float16, empty=lambda count, dtype: Tensor(b""),
       frombuffer=lambda held, dtype: Tensor(held), device=lambda name: types.SimpleNamespace(type=name.split(":")[0]))


# ---- LMCache ----


class MemoryFormat(enum.Enum):
    UNDEFINED = 0
    KV_2LTD = 1
    KV_MLA_FMT = 2


class MemoryObjMetadata:
    def __init__(self, shape, dtype, address, phy_size, ref_count, pin_count, fmt, shapes=None, dtypes=None):
        self.shape, self.ref_count, self.fmt, self.shapes, self.dtypes = shape, ref_count, fmt, shapes, dtypes


class MemoryAllocatorInterface:
    pass


class TensorMemoryObj:
    def __init__(self, raw_data, metadata, parent_allocator):
        self.raw_data, self.meta, self.parent, self.valid = raw_data, metadata, parent_allocator, True

    def invalidate(self):
        self.valid = False

    def get_size(self):
        return sum(shape.numel() * dtype.itemsize for shape, dtype in zip(self.meta.shapes, self.meta.dtypes))

    @property
    def byte_array(self):
        return memoryview((ctypes.c_ubyte * self.get_size()).from_buffer(self.raw_data.held))

    def ref_count_up(self):
        self.meta.ref_count += 1

    def ref_count_down(self):
        self.meta.ref_count -= 1
        if self.meta.ref_count == 0:
            self.parent.free(self)


class StoragePluginInterface:
    def __init__(self, dst_device="cpu", config=None, metadata=None, local_cpu_backend=None, loop=None):
        self.dst_device, self.config, self.metadata = dst_device, config, metadata
        self.local_cpu_backend, self.loop = local_cpu_backend, loop


class CacheEngineKey:
    def __init__(self, chunk_hash, worker_id=0, model="model", request_configs=None):
        self.chunk_hash, self.worker_id, self.model_name, self.request_configs = chunk_hash, worker_id, model, request_configs

    def _all(self):
        return (self.model_name, self.worker_id, self.chunk_hash)

    def __eq__(self, other):
        return self._all() == other._all()

    def __hash__(self):
        return hash(self._all())

    def with_new_worker_id(self, worker_id):
        return CacheEngineKey(self.chunk_hash, worker_id, self.model_name, self.request_configs)

    def to_string(self):
        return "@".join(str(part) for part in self._all())


module("lmcache")
module("lmcache.v1")
module("lmcache.v1.memory_management", MemoryAllocatorInterface=MemoryAllocatorInterface, MemoryFormat=MemoryFormat,
       MemoryObjMetadata=MemoryObjMetadata, TensorMemoryObj=TensorMemoryObj)
module("lmcache.v1.storage_backend")
module("lmcache.v1.storage_backend.abstract_backend", StoragePluginInterface=StoragePluginInterface)


# ---- vLLM ----


class LookupResult(enum.Enum):
    MISS = 1
    HIT = 2
    HIT_PENDING = 3
    RETRY = 4


class Medium(enum.Enum):
    CPU = "CPU"
    STORAGE = "STORAGE"


class Locality(enum.Enum):
    LOCAL = "LOCAL"
    REMOTE = "REMOTE"


class FileMapper:
    rank = 0

    def __init__(self, spec):
        self.spec = spec

    @classmethod
    def from_offloading_spec(cls, root_dir, offloading_spec, blocks_per_file, parallel_agnostic):
        return cls(offloading_spec)

    def get_run_config(self):
        return {"model_name": self.spec.config.model.name, "tp_size": 1}


class AsyncLookupManager:
    """A tier without peers uses only what it is given."""

    def __init__(self, tier_type):
        self.missed, self.cleaned, self.down = [], [], False

    def mark_miss(self, keys):
        self.missed += keys

    def cleanup(self, req_id):
        self.cleaned.append(req_id)

    def flush(self):
        pass

    def shutdown(self):
        self.down = True


class JobResult:
    def __init__(self, job_id, success, successful_keys=None, transfer_time=None, transfer_bytes=None):
        self.job_id, self.success, self.successful_keys, self.transfer_bytes = job_id, success, successful_keys, transfer_bytes


class SecondaryTierManager:
    def __init__(self, offloading_spec, primary_kv_view, tier_type, backpressure_detector=None):
        self._primary_kv_view, self.tier_type, self.block_size_bytes = primary_kv_view, tier_type, primary_kv_view.strides[0]


class Event(types.SimpleNamespace):
    pass


class EngineCore:
    def add_lora(self, lora_request):
        return True


def _gen_lora_extra_hash_keys(request):
    return [("lora", request.lora_request.lora_name, request.lora_request.lora_path)] if request.lora_request else []


def generate_block_hash_extra_keys(request):
    return _gen_lora_extra_hash_keys(request)


for part in ("vllm", "vllm.v1", "vllm.v1.core", "vllm.v1.engine", "vllm.v1.kv_offload", "vllm.v1.kv_offload.tiering"):
    module(part)
module("vllm.v1.kv_offload.base", LookupResult=LookupResult, Medium=Medium, Locality=Locality, OffloadingEvent=Event,
       RequestOffloadingContext=types.SimpleNamespace)
sys.modules["vllm.v1.core"].kv_cache_utils = module("vllm.v1.core.kv_cache_utils", _gen_lora_extra_hash_keys=_gen_lora_extra_hash_keys,
                                                    generate_block_hash_extra_keys=generate_block_hash_extra_keys)
module("vllm.v1.engine.core", EngineCore=EngineCore)
module("vllm.v1.kv_offload.file_mapper", FileMapper=FileMapper)
module("vllm.v1.kv_offload.tiering.async_lookup", AsyncLookupManager=AsyncLookupManager)
module("vllm.v1.kv_offload.tiering.base", JobResult=JobResult, SecondaryTierManager=SecondaryTierManager)
