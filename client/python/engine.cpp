/* client/python/engine.cpp - the types Engine and Memory: an engine with its pools. */
#include "client/python/internal.hpp"

namespace py
{

constexpr size_t layers_max = 4096;
constexpr uint32_t world_max = 64;

/* ---- registration ---- */

/* Arrays of one pool that sl_engine_register borrows. */
struct pool_plan {
    std::vector<sl_engine_layer> layers;
    std::vector<int> fds;
    std::vector<const sl_pool *> from;
    std::vector<std::vector<uint64_t>> addresses; /* [world][layers] */
    std::vector<const uint64_t *> device;
    std::vector<uint32_t> first_parts;
};
class plan
{
  public:
    void take_model(PyObject *model);
    void take_pools(PyObject *sequence);

    sl_engine_options options = {};
    uint32_t ranks_here = 0;
    sl_engine_pool pools[pools_max] = {};
    std::list<pool_use> pool_uses; /* move to the engine once it is registered */

  private:
    const char *take_text(PyObject *object);
    void take_pool(sl_engine_pool &pool, pool_plan &plan, PyObject *object);
    void take_layers(sl_engine_pool &pool, pool_plan &plan, PyObject *sequence);
    items of_ranks(PyObject *sequence, const char *what, const char *otherwise) const;

    pool_plan plans[pools_max];
    std::vector<ref> held; /* owners of the texts in options */
};

/* Returns the text of a str, borrowed from `held`; NULL for None. */
const char *plan::take_text(PyObject *object)
{
    held.push_back(share(object));
    return text_or_none(object);
}

static sl_engine_layer layer_of(PyObject *object)
{
    const ref numbers = own(PySequence_Tuple(object));
    const Py_ssize_t count = PyTuple_Size(numbers.get());
    if (count != 4 && count != 7) {
        fail(PyExc_TypeError,
             "a layer is (offset, length, block_stride, piece), in bytes, and optionally "
             "(part, fragment, fragment_stride)");
    }
    const auto number = [&](Py_ssize_t i) { return u64(PyTuple_GetItem(numbers.get(), i)); };
    sl_engine_layer layer = {number(0), number(1), number(2), number(3), 0, 0, 0};
    if (count == 7) {
        layer.part = u32(PyTuple_GetItem(numbers.get(), 4));
        layer.fragment_bytes = number(5);
        layer.fragment_stride_bytes = number(6);
    }
    return layer;
}

void plan::take_layers(sl_engine_pool &pool, pool_plan &plan, PyObject *sequence)
{
    const items given(sequence, layers_max, "layers");
    plan.layers = room<sl_engine_layer>(given.count);
    pool.layers = plan.layers.data();
    pool.layer_count = given.count;
    for (uint32_t i = 0; i < given.count; i++) {
        uint64_t end = 0;
        const sl_engine_layer &layer = plan.layers[i] = layer_of(given[i]);
        if (__builtin_add_overflow(layer.offset_bytes, layer.length_bytes, &end)) {
            refuse(SL_ERR_INVALID, "a layer ends beyond 64 bits");
        }
        pool.memory_bytes = std::max(pool.memory_bytes, end); /* unless the caller gives a size */
    }
}

/* A sequence with one item for each rank of this process. */
items plan::of_ranks(PyObject *sequence, const char *what, const char *otherwise) const
{
    items given(sequence, world_max, what);
    if (given.count != ranks_here) {
        refuse(SL_ERR_INVALID, otherwise);
    }
    return given;
}

static std::vector<int> fds_of(const items &given)
{
    std::vector<int> fds = room<int>(given.count);
    for (uint32_t i = 0; i < given.count; i++) {
        const long fd = PyLong_AsLong(given[i]);
        check(fd != -1 || PyErr_Occurred() == nullptr);
        fds[i] = fd < 0 || fd > INT32_MAX ? -1 : static_cast<int>(fd);
    }
    return fds;
}

/* The addresses of one rank's layers. */
static std::vector<uint64_t> addresses_of(PyObject *sequence, uint32_t layer_count)
{
    const items given(sequence, layers_max, "addresses");
    std::vector<uint64_t> addresses = room<uint64_t>(given.count);
    if (given.count != layer_count) {
        refuse(SL_ERR_INVALID, "a rank has one address a layer");
    }
    for (uint32_t i = 0; i < given.count; i++) {
        addresses[i] = u64(given[i]);
    }
    return addresses;
}

static std::vector<uint32_t> first_parts_of(PyObject *sequence, uint32_t world)
{
    u32s given;
    given.take(sequence, world_max, "first parts");
    if (given.count != world) {
        refuse(SL_ERR_INVALID, "first_parts: one for each rank of the world");
    }
    return {given.at, given.at + given.count};
}

/* Reads a pool: (name, kind, layers, memory_bytes, fds, device_pools, device), and optionally
 * (part_count, first_parts), as in sluice.Pool. */
void plan::take_pool(sl_engine_pool &pool, pool_plan &plan, PyObject *object)
{
    const ref fields = own(PySequence_Tuple(object));
    const Py_ssize_t count = PyTuple_Size(fields.get());
    if (count != 7 && count != 9) {
        fail(PyExc_TypeError, "a pool is sluice.Pool(name, kind, layers, memory_bytes, fds, "
                              "device_pools, device, part_count, first_parts)");
    }
    const auto field = [&](Py_ssize_t i) { return PyTuple_GetItem(fields.get(), i); };
    pool.name = take_text(field(0));
    pool.kind = static_cast<sl_pool_kind>(u32(field(1)));
    take_layers(pool, plan, field(2));
    if (const uint64_t memory_bytes = u64(field(3)); memory_bytes != 0) {
        pool.memory_bytes = memory_bytes;
    }
    if (field(4) != Py_None) {
        plan.fds = fds_of(of_ranks(field(4), "fds", "a pool has one descriptor a rank"));
        pool.fds = plan.fds.data();
    }
    if (field(5) != Py_None) {
        const items given =
            of_ranks(field(5), "pools of ranks", "a pool has one DevicePool a rank");
        for (uint32_t i = 0; i < given.count; i++) {
            plan.from.push_back(pool_uses.emplace_back(given[i]).at());
        }
        plan.from.push_back(nullptr); /* so that it has an address */
        pool.from = plan.from.data();
    }
    if (field(6) != Py_None) {
        const items given = of_ranks(field(6), "ranks", "a pool has addresses for each rank");
        for (uint32_t i = 0; i < given.count; i++) {
            plan.addresses.push_back(addresses_of(given[i], pool.layer_count));
            plan.device.push_back(plan.addresses.back().data());
        }
        plan.device.push_back(nullptr);
        pool.device = plan.device.data();
    }
    if (count == 9) {
        pool.part_count = u32(field(7));
        if (field(8) != Py_None) {
            plan.first_parts = first_parts_of(field(8), options.world);
            pool.first_parts = plan.first_parts.data();
        }
    }
}

void plan::take_pools(PyObject *sequence)
{
    const items given(sequence, pools_max, "pools");
    options.pools = pools;
    options.pool_count = given.count;
    for (uint32_t i = 0; i < given.count; i++) {
        take_pool(pools[i], plans[i], given[i]);
    }
}

void plan::take_model(PyObject *model)
{
    sl_model &to = options.model;
    const struct {
        const char *name, *&text;
    } fields[] = {{"name", to.name},
                  {"revision", to.revision},
                  {"dtype", to.dtype},
                  {"layout", to.layout},
                  {"rope", to.rope},
                  {"lora", to.lora},
                  {"quantisation", to.quantisation}};
    Py_ssize_t left = model == nullptr || model == Py_None ? 0 : PyMapping_Size(model);
    check(left >= 0);
    for (size_t i = 0; left > 0 && i < std::size(fields); i++) {
        if (PyMapping_HasKeyString(model, fields[i].name) != 0) {
            fields[i].text = take_text(own(PyMapping_GetItemString(model, fields[i].name)).get());
            left--;
        }
    }
    if (left > 0) {
        refuse(
            SL_ERR_INVALID,
            "a model has name, revision, dtype, layout, rope, lora, quantisation and nothing else");
    }
}

static ref engine_register(client &self, PyObject *name, PyObject *pools, uint32_t block_tokens,
                           uint32_t block_count, std::optional<uint32_t> world, PyObject *model,
                           const char *key_format, text_or_none seed, timeout wait, uint64_t team,
                           uint32_t first_rank, uint32_t rank_count)
{
    plan plan;
    sl_engine_options &options = plan.options;
    options.name = c_text(name);
    options.key_format = key_format == nullptr ? "sluice" : key_format;
    options.seed = seed;
    options.block_tokens = block_tokens;
    options.block_count = block_count;
    options.world = world.value_or(1);
    options.team = team;
    options.first_rank = first_rank;
    options.rank_count = rank_count;
    /* Checked before tables of ranks are filled; libsluice checks the rest. */
    plan.ranks_here = team == 0 ? options.world : rank_count;
    if (plan.ranks_here > world_max || options.world > world_max) {
        refuse(SL_ERR_INVALID, "an engine has at most 64 ranks");
    }
    plan.take_model(model);
    plan.take_pools(pools);

    ref made = make<engine>(kinds.engine); /* first: if this fails, no engine is left registered */
    auto &of = py::of<engine>(made.get());
    of.name = share(name);
    for (uint32_t i = 0; i < options.pool_count; i++) {
        of.pool_names.push_back(give(plan.pools[i].name == nullptr ? "" : plan.pools[i].name));
        of.memory_bytes.push_back(plan.pools[i].memory_bytes);
    }
    of.by = kept<client>(self);
    sl_engine *registered = nullptr;
    ask([&](sl_error *why) {
        return sl_engine_register(self.at, &options, wait, &registered, why);
    });
    of.pools = std::move(plan.pool_uses);
    of.started(registered);
    return made;
}

void engine_methods(methods &client)
{
    add(client,
        METHOD(
            "engine",
            "(name, *, pools, block_tokens, block_count, world=1, model=None, key_format='sluice', seed=None, timeout=None, team=0, first_rank=0, rank_count=0)",
            engine_register, "Registers an engine with its pools and returns it as an Engine."));
}

/* ---- memory ---- */

struct memory {
    kept<engine> of;
    void *at;
    uint64_t length_bytes;
};

static int memory_getbuffer(PyObject *object, Py_buffer *buffer, int flags)
{
    const auto &self = of<memory>(object);
    return PyBuffer_FillInfo(buffer, object, self.at, static_cast<Py_ssize_t>(self.length_bytes), 0,
                             flags);
}

/* Returns the index of a pool by its name or number; NULL is 0. */
static uint32_t pool_find(const engine &self, PyObject *pool)
{
    if (pool == nullptr) {
        return 0;
    }
    if (!PyUnicode_Check(pool)) {
        return u32(pool);
    }
    for (uint32_t i = 0; i < self.pool_names.size(); i++) {
        if (PyUnicode_Compare(self.pool_names[i].get(), pool) == 0) {
            return i;
        }
    }
    fail(PyExc_LookupError, "no pool %R", pool);
}

static ref engine_memory(engine &self, uint32_t rank, PyObject *pool)
{
    const uint32_t index = pool_find(self, pool);
    kept<engine> of(self);
    void *at = sl_engine_memory(self.at, rank, index);
    if (at == nullptr) {
        refuse(SL_ERR_INVALID, "the engine has no such rank or pool in host memory");
    }
    const ref made = make<memory>(kinds.memory, std::move(of), at, self.memory_bytes[index]);
    return own(PyMemoryView_FromObject(made.get()));
}

static ref engine_memory_kind(engine &self, uint32_t rank, PyObject *pool)
{
    const uint32_t index = pool_find(self, pool);
    const use here(self);
    const char *kind = sl_engine_memory_kind(self.at, rank, index);
    if (kind == nullptr) {
        refuse(SL_ERR_INVALID, "the engine has no such rank or pool");
    }
    return give(kind);
}

/* ---- the types ---- */

static ref engine_name(engine &self)
{
    return share(self.name.get());
}

void engine_add(PyObject *module)
{
    static methods functions;
    functions = {
        METHOD("end", "()", close_it<engine>,
               "Ends the registration: at once, or with the last op or memoryview of it."),
        METHOD("memory", "(rank=0, pool=0)", engine_memory,
               "Returns the memory of a rank's pool (by name or number) as a writable "
               "memoryview of bytes, without a copy."),
        METHOD("memory_kind", "(rank=0, pool=0)", engine_memory_kind,
               "Returns the kind of memory of a rank's pool as text for people: \"shared "
               "memory\", \"cuda ipc\", \"cuda descriptor\" or \"cuda memory of many handles\"."),
        WITH(enter_it<engine>, leave_it<engine>),
    };
    methods of_op;
    op_methods(functions);
    block_methods(functions);
    layer_methods(functions, of_op);
    functions.push_back(last_method);
    op_add(module, of_op);
    static PyGetSetDef attributes[] = {
        attribute<engine_name>("name", "The name under which the engine was registered."),
        attribute<is_closed<engine>>("ended", "Whether end() was called."),
        attribute<known<sl_engine_model_identity, engine>>(
            "model_identity",
            "32 hex digits: a hash of everything that determines what the stored bytes mean."),
        last_attribute,
    };
    kinds.engine = add_type<engine>(
        module, "sluice.Engine",
        "An engine that is registered with the pools of its ranks; made by Client.engine.",
        functions.data(), attributes, {});
    kinds.memory = add_type<memory>(
        module, "sluice.Memory",
        "Owner of a memoryview of an engine's memory; keeps the memory mapped.", nullptr, nullptr,
        {{Py_bf_getbuffer, reinterpret_cast<void *>(memory_getbuffer)}});
}

} // namespace py
