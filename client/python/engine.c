/* client/python/engine.c - the types Engine and Memory: an engine with its pools. */
#include "client/python/internal.h"

#include <string.h>

#define POOLS_MAX  8
#define LAYERS_MAX 4096
#define WORLD_MAX  64

/* ---- life ---- */

static void lent_return(PyObject *lent)
{
    Py_ssize_t count = lent == NULL ? 0 : PyList_Size(lent);
    for (Py_ssize_t i = 0; i < count; i++) {
        sl_py_pool_return(PyList_GetItem(lent, i));
    }
}

static void engine_end(PyObject *object)
{
    struct py_engine *self = (struct py_engine *)object;
    struct sl_engine *gone = self->engine;
    self->engine = NULL;
    if (gone == NULL) {
        return;
    }
    if (!sl_py_foreign(self->client)) {
        PyThreadState *unlocked = PyEval_SaveThread();
        sl_engine_end(&gone);
        PyEval_RestoreThread(unlocked);
    }
    lent_return(self->lent);
    sl_py_leave(self->client);
}

static const struct py_kind engine_kind = {
    .closed = "the engine has ended",
    .foreign = "the engine was registered before a fork",
    .end = engine_end,
};

static void engine_dealloc(PyObject *object)
{
    struct py_engine *self = (struct py_engine *)object;
    engine_end(object); /* whoever used it held a reference */
    Py_XDECREF((PyObject *)self->client);
    Py_XDECREF(self->name);
    Py_XDECREF(self->lent);
    Py_XDECREF(self->pool_names);
    PyMem_Free(self->memory_bytes);
    sl_glue_free(object);
}

/* ---- registration ---- */

/* What sl_engine_register borrows; texts belong to held. */
struct plan {
    struct sl_engine_options options;
    struct sl_engine_pool pools[POOLS_MAX];
    struct sl_engine_layer *layers[POOLS_MAX];
    int fds[POOLS_MAX][WORLD_MAX];
    const struct sl_pool *from[POOLS_MAX][WORLD_MAX];
    uint64_t *addresses[POOLS_MAX]; /* [world][layers] */
    const uint64_t *device[POOLS_MAX][WORLD_MAX];
    uint32_t first_parts[POOLS_MAX][WORLD_MAX];
    uint32_t ranks_here;
    PyObject *held; /* a list */
    PyObject *lent; /* a list of DevicePools, each lent; the engine's once it is registered */
};

static void plan_release(struct plan *plan)
{
    for (int i = 0; i < POOLS_MAX; i++) {
        PyMem_Free(plan->layers[i]);
        PyMem_Free(plan->addresses[i]);
    }
    Py_XDECREF(plan->held);
    lent_return(plan->lent);
    Py_XDECREF(plan->lent);
}

/* Text of a str, or NULL of None; kept alive by the plan. */
static bool text_take(struct plan *plan, PyObject *object, const char **out)
{
    Py_ssize_t length = 0;
    *out = NULL;
    if (object == NULL || object == Py_None) {
        return true;
    }
    *out = PyUnicode_AsUTF8AndSize(object, &length);
    if (*out != NULL && strlen(*out) != (size_t)length) {
        PyErr_SetString(PyExc_ValueError, "embedded null character");
        return false;
    }
    return *out != NULL && PyList_Append(plan->held, object) == 0;
}

static bool layer_take(PyObject *object, struct sl_engine_layer *out)
{
    PyObject *numbers = PySequence_Tuple(object);
    bool fine = numbers != NULL;
    Py_ssize_t count = fine ? PyTuple_Size(numbers) : 0;
    if (fine && count != 4 && count != 7) {
        PyErr_SetString(PyExc_TypeError,
                        "a layer is (offset, length, block_stride, piece), in bytes, and perhaps "
                        "(part, fragment, fragment_stride)");
        fine = false;
    }
    fine = fine && sl_glue_u64(PyTuple_GetItem(numbers, 0), &out->offset_bytes) &&
           sl_glue_u64(PyTuple_GetItem(numbers, 1), &out->length_bytes) &&
           sl_glue_u64(PyTuple_GetItem(numbers, 2), &out->block_stride_bytes) &&
           sl_glue_u64(PyTuple_GetItem(numbers, 3), &out->piece_bytes);
    if (fine && count == 7) {
        fine = sl_py_u32(PyTuple_GetItem(numbers, 4), &out->part) &&
               sl_glue_u64(PyTuple_GetItem(numbers, 5), &out->fragment_bytes) &&
               sl_glue_u64(PyTuple_GetItem(numbers, 6), &out->fragment_stride_bytes);
    }
    Py_XDECREF(numbers);
    return fine;
}

static bool layers_take(struct py_state *state, struct plan *plan, uint32_t number,
                        PyObject *sequence)
{
    struct sl_engine_pool *pool = &plan->pools[number];
    PyObject *items = sl_py_items(state, sequence, LAYERS_MAX, "layers");
    if (items == NULL) {
        return false;
    }
    pool->layer_count = (uint32_t)PyTuple_Size(items);
    struct sl_engine_layer *layers = PyMem_Calloc((size_t)pool->layer_count + 1, sizeof *layers);
    plan->layers[number] = layers;
    pool->layers = layers;
    bool fine = layers != NULL;
    if (!fine) {
        PyErr_NoMemory();
    }
    for (uint32_t i = 0; fine && i < pool->layer_count; i++) {
        uint64_t end;
        fine = layer_take(PyTuple_GetItem(items, (Py_ssize_t)i), &layers[i]);
        if (fine && __builtin_add_overflow(layers[i].offset_bytes, layers[i].length_bytes, &end)) {
            sl_py_raise_text(state, SL_ERR_INVALID, "a layer ends beyond 64 bits");
            fine = false;
        } else if (fine && pool->memory_bytes < end) {
            pool->memory_bytes = end; /* unless the caller gives more */
        }
    }
    Py_DECREF(items);
    return fine;
}

static bool fds_take(struct py_state *state, struct plan *plan, uint32_t number, PyObject *sequence)
{
    if (sequence == Py_None) {
        return true;
    }
    PyObject *items = sl_py_items(state, sequence, WORLD_MAX, "fds");
    bool fine = items != NULL;
    if (fine && (uint64_t)PyTuple_Size(items) != plan->ranks_here) {
        sl_py_raise_text(state, SL_ERR_INVALID, "a pool has one descriptor a rank");
        fine = false;
    }
    for (uint32_t i = 0; fine && i < plan->ranks_here; i++) {
        long fd = PyLong_AsLong(PyTuple_GetItem(items, (Py_ssize_t)i));
        fine = !(fd == -1 && PyErr_Occurred() != NULL);
        plan->fds[number][i] = fd < 0 || fd > INT32_MAX ? -1 : (int)fd;
    }
    plan->pools[number].fds = plan->fds[number];
    Py_XDECREF(items);
    return fine;
}

static bool from_take(struct py_state *state, struct plan *plan, uint32_t number,
                      PyObject *sequence)
{
    if (sequence == Py_None) {
        return true;
    }
    PyObject *items = sl_py_items(state, sequence, WORLD_MAX, "pools of ranks");
    bool fine = items != NULL;
    if (fine && (uint64_t)PyTuple_Size(items) != plan->ranks_here) {
        sl_py_raise_text(state, SL_ERR_INVALID, "a pool has one DevicePool a rank");
        fine = false;
    }
    for (uint32_t i = 0; fine && i < plan->ranks_here; i++) {
        PyObject *lent = PyTuple_GetItem(items, (Py_ssize_t)i);
        plan->from[number][i] = sl_py_pool_lend(state, lent);
        fine = plan->from[number][i] != NULL;
        if (fine && PyList_Append(plan->lent, lent) != 0) {
            sl_py_pool_return(lent);
            fine = false;
        }
    }
    plan->pools[number].from = plan->from[number];
    Py_XDECREF(items);
    return fine;
}

/* The addresses of one rank's layers, into out. */
static bool addresses_take(struct py_state *state, const struct sl_engine_pool *pool,
                           PyObject *sequence, uint64_t *out)
{
    PyObject *items = sl_py_items(state, sequence, LAYERS_MAX, "addresses");
    bool fine = items != NULL;
    if (fine && (uint64_t)PyTuple_Size(items) != pool->layer_count) {
        sl_py_raise_text(state, SL_ERR_INVALID, "a rank has one address a layer");
        fine = false;
    }
    for (uint32_t i = 0; fine && i < pool->layer_count; i++) {
        fine = sl_glue_u64(PyTuple_GetItem(items, (Py_ssize_t)i), &out[i]);
    }
    Py_XDECREF(items);
    return fine;
}

static bool device_take(struct py_state *state, struct plan *plan, uint32_t number,
                        PyObject *sequence)
{
    struct sl_engine_pool *pool = &plan->pools[number];
    uint32_t world = plan->ranks_here;
    if (sequence == Py_None) {
        return true;
    }
    PyObject *items = sl_py_items(state, sequence, WORLD_MAX, "ranks");
    bool fine = items != NULL;
    if (fine && (uint64_t)PyTuple_Size(items) != world) {
        sl_py_raise_text(state, SL_ERR_INVALID, "a pool has addresses for each rank");
        fine = false;
    }
    if (fine) {
        plan->addresses[number] =
            PyMem_Calloc((size_t)world * pool->layer_count + 1, sizeof *plan->addresses[number]);
        fine = plan->addresses[number] != NULL || PyErr_NoMemory() != NULL;
    }
    for (uint32_t i = 0; fine && i < world; i++) {
        uint64_t *out = plan->addresses[number] + (size_t)i * pool->layer_count;
        plan->device[number][i] = out;
        fine = addresses_take(state, pool, PyTuple_GetItem(items, (Py_ssize_t)i), out);
    }
    pool->device = plan->device[number];
    Py_XDECREF(items);
    return fine;
}

static bool first_parts_take(struct py_state *state, struct plan *plan, uint32_t number,
                             PyObject *sequence)
{
    struct py_u32s parts;
    if (sequence == Py_None) {
        return true;
    }
    bool fine = sl_py_u32s_take(state, sequence, WORLD_MAX, "first parts", &parts);
    if (fine && parts.count != plan->options.world) {
        sl_py_raise_text(state, SL_ERR_INVALID, "first_parts: one for each rank of the world");
        fine = false;
    }
    for (uint32_t i = 0; fine && i < parts.count; i++) {
        plan->first_parts[number][i] = parts.at[i];
    }
    plan->pools[number].first_parts = plan->first_parts[number];
    sl_py_u32s_release(&parts);
    return fine;
}

/* (name, kind, layers, memory_bytes, fds, device_pools, device), and perhaps (part_count,
 * first_parts), as sluice.Pool is. */
static bool pool_take(struct py_state *state, struct plan *plan, uint32_t number, PyObject *object)
{
    struct sl_engine_pool *pool = &plan->pools[number];
    PyObject *fields = PySequence_Tuple(object);
    if (fields == NULL) {
        return false;
    }
    uint32_t kind = 0;
    uint64_t memory_bytes = 0;
    Py_ssize_t field_count = PyTuple_Size(fields);
    bool fine = field_count == 7 || field_count == 9;
    if (!fine) {
        PyErr_SetString(
            PyExc_TypeError,
            "a pool is sluice.Pool(name, kind, layers, memory_bytes, fds, device_pools, device, "
            "part_count, first_parts)");
    }
    fine = fine && text_take(plan, PyTuple_GetItem(fields, 0), &pool->name) &&
           sl_py_u32(PyTuple_GetItem(fields, 1), &kind) &&
           layers_take(state, plan, number, PyTuple_GetItem(fields, 2)) &&
           sl_glue_u64(PyTuple_GetItem(fields, 3), &memory_bytes) &&
           fds_take(state, plan, number, PyTuple_GetItem(fields, 4)) &&
           from_take(state, plan, number, PyTuple_GetItem(fields, 5)) &&
           device_take(state, plan, number, PyTuple_GetItem(fields, 6));
    if (fine && field_count == 9) {
        fine = sl_py_u32(PyTuple_GetItem(fields, 7), &pool->part_count) &&
               first_parts_take(state, plan, number, PyTuple_GetItem(fields, 8));
    }
    pool->kind = (enum sl_pool_kind)kind;
    pool->memory_bytes = memory_bytes != 0 ? memory_bytes : pool->memory_bytes;
    Py_DECREF(fields);
    return fine;
}

static bool pools_take(struct py_state *state, struct plan *plan, PyObject *sequence)
{
    PyObject *items = sl_py_items(state, sequence, POOLS_MAX, "pools");
    bool fine = items != NULL;
    plan->options.pools = plan->pools;
    plan->options.pool_count = fine ? (uint32_t)PyTuple_Size(items) : 0;
    for (uint32_t i = 0; fine && i < plan->options.pool_count; i++) {
        fine = pool_take(state, plan, i, PyTuple_GetItem(items, (Py_ssize_t)i));
    }
    Py_XDECREF(items);
    return fine;
}

static bool model_take(struct py_state *state, struct plan *plan, PyObject *model)
{
    struct sl_model *to = &plan->options.model;
    const struct {
        const char *name;
        const char **text;
    } fields[] = {{"name", &to->name},
                  {"revision", &to->revision},
                  {"dtype", &to->dtype},
                  {"layout", &to->layout},
                  {"rope", &to->rope},
                  {"lora", &to->lora},
                  {"quantisation", &to->quantisation}};
    Py_ssize_t known = 0, count = model == NULL || model == Py_None ? 0 : PyMapping_Size(model);
    for (size_t i = 0; count > 0 && i < sizeof fields / sizeof *fields; i++) {
        if (PyMapping_HasKeyString(model, fields[i].name) == 0) {
            continue;
        }
        PyObject *value = PyMapping_GetItemString(model, fields[i].name);
        bool fine = value != NULL && text_take(plan, value, fields[i].text);
        Py_XDECREF(value);
        if (!fine) {
            return false;
        }
        known++;
    }
    if (count > known) {
        sl_py_raise_text(
            state, SL_ERR_INVALID,
            "a model has name, revision, dtype, layout, rope, lora, quantisation and nothing else");
    }
    return count == known;
}

/* Gives the Engine; the caller uses the client. */
static PyObject *engine_new(struct py_state *state, struct py_client *client, PyObject *name,
                            const struct plan *plan)
{
    struct py_engine *self = (struct py_engine *)sl_glue_new(state->engine);
    if (self == NULL) {
        return NULL;
    }
    self->client = (struct py_client *)Py_NewRef((PyObject *)client);
    self->name = Py_NewRef(name);
    self->world = plan->options.world;
    self->pool_count = plan->options.pool_count;
    self->memory_bytes = PyMem_Calloc(POOLS_MAX, sizeof *self->memory_bytes);
    self->pool_names = PyTuple_New((Py_ssize_t)self->pool_count);
    bool fine = self->memory_bytes != NULL && self->pool_names != NULL;
    for (uint32_t i = 0; fine && i < self->pool_count; i++) {
        PyObject *pool = sl_glue_text(plan->pools[i].name == NULL ? "" : plan->pools[i].name);
        fine = pool != NULL && PyTuple_SetItem(self->pool_names, (Py_ssize_t)i, pool) == 0;
        self->memory_bytes[i] = plan->pools[i].memory_bytes;
    }
    if (!fine) {
        Py_DECREF((PyObject *)self);
        return PyErr_Occurred() == NULL ? PyErr_NoMemory() : NULL;
    }
    return (PyObject *)self;
}

static PyObject *plan_register(struct py_state *state, struct py_client *client, PyObject *name,
                               struct plan *plan, uint64_t timeout_ns)
{
    PyObject *object =
        engine_new(state, client, name, plan); /* first: nothing is registered for nobody */
    if (object == NULL || !sl_py_enter(client)) {
        Py_XDECREF(object);
        return NULL;
    }
    struct py_engine *self = (struct py_engine *)object;
    struct sl_error why = {.code = SL_OK};
    sl_err err;
    PyThreadState *unlocked = PyEval_SaveThread();
    err = sl_engine_register(client->client, &plan->options, timeout_ns, &self->engine, &why);
    PyEval_RestoreThread(unlocked);
    if (err == SL_OK) {
        self->lent = plan->lent;
        plan->lent = NULL;
        sl_py_begin(self, &engine_kind);
        return object; /* its use of the client is the one that was taken */
    }
    Py_DECREF(object);
    sl_py_leave(client);
    return sl_py_raise(state, err, &why);
}

/* Before tables of ranks are filled: libsluice checks more. */
static bool ranks_here(struct py_state *state, struct plan *plan)
{
    plan->ranks_here = plan->options.team == 0 ? plan->options.world : plan->options.rank_count;
    if (plan->ranks_here > WORLD_MAX || plan->options.world > WORLD_MAX) {
        sl_py_raise_text(state, SL_ERR_INVALID, "an engine has at most 64 ranks");
        return false;
    }
    return true;
}

PyObject *sl_py_engine_register(PyObject *object, PyObject *args, PyObject *names)
{
    static char *words[] = {
        "name", "pools",   "block_tokens", "block_count", "world",      "model", "key_format",
        "seed", "timeout", "team",         "first_rank",  "rank_count", NULL};
    PyObject *team = NULL, *first_rank = NULL, *rank_count = NULL;
    struct py_state *state = sl_py_state(object);
    PyObject *name, *pools = NULL, *block_tokens = NULL, *block_count = NULL;
    PyObject *world = NULL, *model = NULL, *timeout = NULL, *result = NULL;
    struct plan plan = {.options = {.key_format = "sluice", .world = 1}};
    uint64_t timeout_ns;
    if (!PyArg_ParseTupleAndKeywords(args, names, "U|$OOOOOszOOOO:engine", words, &name, &pools,
                                     &block_tokens, &block_count, &world, &model,
                                     &plan.options.key_format, &plan.options.seed, &timeout, &team,
                                     &first_rank, &rank_count)) {
        return NULL;
    }
    if (pools == NULL || block_tokens == NULL || block_count == NULL) {
        PyErr_SetString(PyExc_TypeError, "engine() needs pools, block_tokens and block_count");
        return NULL;
    }
    plan.held = PyList_New(0);
    plan.lent = PyList_New(0);
    if (plan.held != NULL && plan.lent != NULL && text_take(&plan, name, &plan.options.name) &&
        sl_py_timeout(timeout, &timeout_ns) &&
        sl_py_u32(block_tokens, &plan.options.block_tokens) &&
        sl_py_u32(block_count, &plan.options.block_count) &&
        (world == NULL || sl_py_u32(world, &plan.options.world)) &&
        (team == NULL || sl_glue_u64(team, &plan.options.team)) &&
        (first_rank == NULL || sl_py_u32(first_rank, &plan.options.first_rank)) &&
        (rank_count == NULL || sl_py_u32(rank_count, &plan.options.rank_count)) &&
        ranks_here(state, &plan) && model_take(state, &plan, model) &&
        pools_take(state, &plan, pools)) {
        result = plan_register(state, (struct py_client *)object, name, &plan, timeout_ns);
    }
    plan_release(&plan);
    return result;
}

/* ---- memory ---- */

struct py_memory {
    PyObject_HEAD struct py_engine *engine; /* a use of it */
    void *at;
    uint64_t length_bytes;
};

static int memory_getbuffer(PyObject *object, Py_buffer *buffer, int flags)
{
    struct py_memory *self = (struct py_memory *)object;
    return PyBuffer_FillInfo(buffer, object, self->at, (Py_ssize_t)self->length_bytes, 0, flags);
}

static void memory_dealloc(PyObject *object)
{
    struct py_memory *self = (struct py_memory *)object;
    if (self->engine != NULL) {
        sl_py_leave(self->engine);
        Py_DECREF((PyObject *)self->engine);
    }
    sl_glue_free(object);
}

/* The place of a pool that is named, or numbered. */
static bool pool_find(const struct py_engine *self, PyObject *pool, uint32_t *out)
{
    if (pool == NULL) {
        *out = 0;
        return true;
    }
    if (!PyUnicode_Check(pool)) {
        return sl_py_u32(pool, out);
    }
    for (uint32_t i = 0; i < self->pool_count; i++) {
        if (PyUnicode_Compare(PyTuple_GetItem(self->pool_names, (Py_ssize_t)i), pool) == 0) {
            *out = i;
            return true;
        }
    }
    PyErr_Format(PyExc_LookupError, "no pool %R", pool);
    return false;
}

static PyObject *engine_memory(PyObject *object, PyObject *args, PyObject *names)
{
    static char *words[] = {"rank", "pool", NULL};
    struct py_engine *self = (struct py_engine *)object;
    struct py_state *state = sl_py_state(object);
    PyObject *rank = NULL, *pool = NULL;
    uint32_t rank_index = 0, pool_index = 0;
    if (!PyArg_ParseTupleAndKeywords(args, names, "|OO:memory", words, &rank, &pool) ||
        (rank != NULL && !sl_py_u32(rank, &rank_index)) || !pool_find(self, pool, &pool_index) ||
        !sl_py_enter(self)) {
        return NULL;
    }
    void *at = sl_engine_memory(self->engine, rank_index, pool_index);
    struct py_memory *memory = at == NULL ? NULL : (struct py_memory *)sl_glue_new(state->memory);
    if (memory == NULL) {
        sl_py_leave(self);
        return at == NULL ? sl_py_raise_text(state, SL_ERR_INVALID,
                                             "the engine has no such rank or pool in host memory")
                          : NULL;
    }
    memory->engine = (struct py_engine *)Py_NewRef(object);
    memory->at = at;
    memory->length_bytes = self->memory_bytes[pool_index];
    PyObject *view = PyMemoryView_FromObject((PyObject *)memory);
    Py_DECREF((PyObject *)memory);
    return view;
}

static PyObject *engine_memory_kind(PyObject *object, PyObject *args, PyObject *names)
{
    static char *words[] = {"rank", "pool", NULL};
    struct py_engine *self = (struct py_engine *)object;
    PyObject *rank = NULL, *pool = NULL;
    uint32_t rank_index = 0, pool_index = 0;
    if (!PyArg_ParseTupleAndKeywords(args, names, "|OO:memory_kind", words, &rank, &pool) ||
        (rank != NULL && !sl_py_u32(rank, &rank_index)) || !pool_find(self, pool, &pool_index) ||
        !sl_py_enter(self)) {
        return NULL;
    }
    const char *kind = sl_engine_memory_kind(self->engine, rank_index, pool_index);
    sl_py_leave(self);
    return kind != NULL ? sl_glue_text(kind)
                        : sl_py_raise_text(sl_py_state(object), SL_ERR_INVALID,
                                           "the engine has no such rank or pool");
}

/* ---- the types ---- */

static PyObject *engine_name(PyObject *object, void *none)
{
    (void)none;
    return Py_NewRef(((struct py_engine *)object)->name);
}

static PyObject *engine_identity(PyObject *object, void *none)
{
    struct py_engine *self = (struct py_engine *)object;
    (void)none;
    if (!sl_py_enter(self)) {
        return NULL;
    }
    PyObject *text = sl_glue_text(sl_engine_model_identity(self->engine));
    sl_py_leave(self);
    return text;
}

#define WORDS (METH_VARARGS | METH_KEYWORDS)
#define METHOD(name, function, how, doc)                        \
    {                                                           \
        name, (PyCFunction)(void (*)(void))(function), how, doc \
    }
static PyMethodDef engine_methods[] = {
    METHOD("end", sl_py_close, METH_NOARGS,
           "Ends the registration: now, or with the last op and the last memoryview or array over "
           "its memory."),
    METHOD("memory", engine_memory, WORDS,
           "memory(rank=0, pool=0)\n--\n\nThe memory of a rank's pool (its name or number), "
           "writable, without a copy: a "
           "memoryview of bytes."),
    METHOD("memory_kind", engine_memory_kind, WORDS,
           "memory_kind(rank=0, pool=0)\n--\n\nWhat the memory of a rank's pool is, for people: "
           "\"shared memory\", \"cuda ipc\", \"cuda descriptor\" or \"cuda memory of many "
           "handles\"."),
    METHOD(
        "store", sl_py_store, WORDS,
        "store(tokens, device_blocks, *, first_block=0, partial=False, extras=None, "
        "timeout=None, trace_id=0, "
        "layer_count=0, layer_ends=None, events=None, hints=None, before=None)\n--\n\n"
        "Begins to store the blocks of tokens, counted from the start of the prompt, that lie "
        "in device_blocks: an Op.\n\n"
        "The swapper reads them on a stream of its own. Without events the engine has waited, "
        "before this call, for the work that writes them. With events the blocks are read when "
        "the event of their rank is over: events is one handle (rank 0) or a dict of handles by "
        "rank, as torch.cuda.Event(interprocess=True).ipc_handle() gives them. An event is "
        "recorded before this call, and neither deleted nor recorded anew until the op has "
        "ended. Until it is fenced nobody writes the blocks.\n\n"
        "Instead of tokens and device_blocks: hashes=..., blocks=..., keys that the engine made, "
        "as a sequence of bytes of one length or as one buffer with hash_bytes, and their "
        "blocks, in one table or a table for each pool.\n\n"
        "before: with hashes, the key of the block before the first one, where it is known. hints: "
        "a dict of what the engine knows: session (\"ends\", \"goes on\"), priority (\"low\", "
        "\"normal\", \"high\") and keep, seconds for which the blocks and those before them are "
        "evicted after others, within bounds.\n\n"
        "By layers with layer_count, where the layers of every pool go evenly into so many, or "
        "with layer_ends: for each layer of the forward pass, for each pool, how many of the "
        "pool's layers belong to it or to those before. So a process without a rank says it."),
    METHOD("load", sl_py_load, WORDS,
           "load(tokens, device_blocks, *, first_block=0, partial=False, extras=None, "
           "timeout=None, trace_id=0, "
           "layer_count=0, layer_ends=None, events=None, hints=None, prefill=None)\n--\n\n"
           "Begins to load the longest prefix that is known into device_blocks: an Op.\n\n"
           "Without events the engine has waited, before this call, for all work that touches "
           "these blocks; with events (as of store) they are written when that of their rank is "
           "over. When the op, or layer_wait, says that blocks are loaded, they are in place: work "
           "that is submitted afterwards sees them, on every stream. By hashes and blocks, and "
           "hints, as store.\n\n"
           "prefill: tokens a second that the engine computes, or a pair of these and of the place "
           "of the token that takes twice as long as the first. Then the load ends with fewer "
           "blocks rather than wait for what is sooner computed than read from a disk or a peer: "
           "not_awaited_count of the result."),
    METHOD(
        "look", sl_py_look_blocks, WORDS,
        "look(hashes, *, hash_bytes=0, window=0, hold=None)\n--\n\nHow many blocks from the first "
        "one on are there, in memory or on disk, by the engine's own keys (as of store). Asks "
        "nobody and waits for nobody. window: a prefix needs its last so many blocks alone. "
        "hold: seconds for which what it needs is not evicted."),
    METHOD("look_there", sl_py_look_there, WORDS,
           "look_there(hashes, *, hash_bytes=0, window=0, hold=None)\n--\n\nThe same number, and a "
           "bitmap of all blocks: bit i & 7 of byte i >> 3."),
    METHOD(
        "layers_ready", sl_py_layers_ready, WORDS,
        "layers_ready(ops, rank, layers, timeout=None)\n--\n\nThis rank has computed the first "
        "so many layers of stores by layers that another process of the engine began. ops: their "
        "numbers (Op.number), or one. None: it is said and not waited for. A layer is ready when "
        "all ranks have said so."),
    METHOD("layers_wait", sl_py_layers_wait, WORDS,
           "layers_wait(op, rank, layers, timeout=None)\n--\n\nWaits until the first so many "
           "layers of a load by layers that another process of the engine began are on the devices "
           "of all ranks: (how many are, of how many blocks). Whoever counts on blocks compares "
           "their number each time."),
    METHOD(
        "send", sl_py_send, WORDS,
        "send(id, tokens, device_blocks, *, first_block=0, mode=HANDOVER_BY_ENVIRONMENT, "
        "ticket=None, hold=None, "
        "extras=None, timeout=None, trace_id=0, "
        "layer_count=0, events=None, hints=None, before=None)\n--\n\nPrefill hands over: an Op, whose "
        "receipt() travels with the first "
        "token, or nothing does where decode says node. Direct without a ticket: takes what "
        "decode's node has offered by then, else it goes through storage. By hashes and blocks "
        "as store; blocks that are stored already are held, and not copied; partial: the last "
        "block is incomplete."),
    METHOD(
        "receive", sl_py_receive, WORDS,
        "receive(id, tokens, device_blocks, *, first_block=0, mode=HANDOVER_BY_ENVIRONMENT, "
        "receipt=None, node=None, "
        "extras=None, timeout=None, trace_id=0, "
        "layer_count=0, events=None, hints=None)\n--\n\nDecode waits for prefill, then loads: an "
        "Op. node: prefill's, which is asked: then no receipt need come. By hashes and blocks, "
        "and partial, as send."),
    METHOD("__enter__", sl_py_with, METH_NOARGS, NULL),
    METHOD("__exit__", sl_py_exit, METH_VARARGS, NULL),
    {NULL, NULL, 0, NULL},
};
static PyGetSetDef engine_attributes[] = {
    {"name", engine_name, NULL, "As it was registered.", NULL},
    {"ended", sl_py_closed, NULL, "Whether end() was called.", NULL},
    {"model_identity", engine_identity, NULL,
     "32 hex digits: all that gives the bytes their meaning.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot engine_slots[] = {
    {Py_tp_doc, "An engine that is registered with all its ranks' pools; from Client.engine."},
    {Py_tp_dealloc, (void *)engine_dealloc},
    {Py_tp_methods, engine_methods},
    {Py_tp_getset, engine_attributes},
    {0, NULL},
};
PyType_Spec sl_py_engine_spec = {
    .name = "sluice.Engine",
    .basicsize = sizeof(struct py_engine),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = engine_slots,
};

static PyType_Slot memory_slots[] = {
    {Py_tp_doc, "What a memoryview of an engine's memory stands on; it keeps that mapped."},
    {Py_tp_dealloc, (void *)memory_dealloc},
    {Py_bf_getbuffer, (void *)memory_getbuffer},
    {0, NULL},
};
PyType_Spec sl_py_memory_spec = {
    .name = "sluice.Memory",
    .basicsize = sizeof(struct py_memory),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = memory_slots,
};
