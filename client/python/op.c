/* client/python/op.c - the type Op: store, load and hand-over under way. */
#include "client/python/internal.h"

#include <string.h>
#include <time.h>

#define NS_PER_S   UINT64_C(1000000000)
#define SLICE_NS   (NS_PER_S / 10) /* how late a signal is seen while waiting */
#define TOKENS_MAX 4194304
#define EVENTS_MAX 64 /* ranks */
#define ENDED_MAX  256

/* ---- results ---- */

static PyStructSequence_Field op_result_fields[] = {
    {"code", "0, or why it failed"},
    {"op_id", NULL},
    {"trace_id", "sluicectl trace shows its path"},
    {"block_count", "store: asked for; load: loaded, from first_block on"},
    {"stored_count", NULL},
    {"existed_count", NULL},
    {"from_memory", NULL},
    {"from_disk", NULL},
    {"from_remote", NULL},
    {"bytes", NULL},
    {"fenced", "whether the device blocks are free again"},
    {"why", "text"},
    {"not_awaited_count", "load with prefill: blocks behind these, sooner computed than read"},
    {NULL, NULL},
};
PyStructSequence_Desc sl_py_op_result_desc = {"sluice.OpResult", "The end of an op.",
                                              op_result_fields, 13};

static PyObject *result_of(struct py_state *state, const struct sl_op_result *from)
{
    PyObject *const fields[] = {
        PyLong_FromLong(from->code),
        PyLong_FromUnsignedLongLong(from->op_id),
        PyLong_FromUnsignedLongLong(from->trace_id),
        PyLong_FromUnsignedLong(from->block_count),
        PyLong_FromUnsignedLong(from->stored_count),
        PyLong_FromUnsignedLong(from->existed_count),
        PyLong_FromUnsignedLong(from->from_memory),
        PyLong_FromUnsignedLong(from->from_disk),
        PyLong_FromUnsignedLong(from->from_remote),
        PyLong_FromUnsignedLongLong(from->bytes),
        PyBool_FromLong(from->fenced),
        sl_glue_text(from->code == SL_OK ? "" : from->why.text),
        PyLong_FromUnsignedLong(from->not_awaited_count),
    };
    return sl_py_struct(state->op_result, fields, 13);
}

/* The result, or the op's failure with it. */
static PyObject *result_give(struct py_state *state, const struct sl_op_result *from)
{
    PyObject *result = result_of(state, from);
    if (result == NULL || from->code == SL_OK) {
        return result;
    }
    sl_py_raise_result(state, from, result);
    Py_DECREF(result);
    return NULL;
}

/* ---- starting one ---- */

/* What the four ways to start have in common. */
struct request {
    struct sl_op_request request;
    struct py_u32s tokens, blocks, layer_ends;
    struct py_hashes hashes;
    struct py_tables tables;
    struct sl_op_event events[EVENTS_MAX];
    unsigned char before[SL_HASH_BYTES_MAX];
};

struct words {
    PyObject *id, *tokens, *blocks, *first_block, *timeout, *trace_id, *layer_count;
    PyObject *mode, *hold, *ticket, *receipt, *events;
    PyObject *hashes, *hash_bytes, *tables, *layer_ends, *hints, *before, *prefill;
    const char *extras;
    int partial;
};

static bool optional_u32(PyObject *number, uint32_t *out)
{
    return number == NULL || sl_py_u32(number, out);
}

static bool event_take(PyObject *handle, uint32_t rank, struct request *out)
{
    uint32_t count = out->request.event_count;
    if (count == EVENTS_MAX) {
        PyErr_Format(PyExc_ValueError, "events: more than %d", EVENTS_MAX);
        return false;
    }
    out->events[count].rank = rank;
    out->request.event_count = count + 1;
    return sl_py_plain_take(handle, out->events[count].handle, sizeof out->events[count].handle,
                            "event");
}

/* One handle, of rank 0, or a dict of them by rank. */
static bool events_take(PyObject *events, struct request *out)
{
    PyObject *rank = NULL, *handle = NULL;
    Py_ssize_t at = 0;
    uint32_t number = 0;
    out->request.events = out->events;
    if (events == NULL || events == Py_None) {
        return true;
    }
    if (!PyDict_Check(events)) {
        return event_take(events, 0, out);
    }
    while (PyDict_Next(events, &at, &rank, &handle)) {
        if (!sl_py_u32(rank, &number) || !event_take(handle, number, out)) {
            return false;
        }
    }
    return true;
}

/* By tokens, or by the engine's own keys. */
static bool blocks_take(struct py_state *state, const struct words *words, struct request *out)
{
    struct sl_op_request *request = &out->request;
    bool hashed = words->hashes != NULL && words->tables != NULL;
    if (hashed ? words->tokens != NULL || words->blocks != NULL
               : words->tokens == NULL || words->blocks == NULL || words->hashes != NULL ||
                     words->tables != NULL || words->hash_bytes != NULL) {
        PyErr_SetString(PyExc_TypeError,
                        "tokens and device_blocks, or hashes and blocks are needed");
        return false;
    }
    if (!hashed) {
        return sl_py_u32s_take(state, words->tokens, TOKENS_MAX, "tokens", &out->tokens) &&
               sl_py_u32s_take(state, words->blocks, SL_PY_BATCH_MAX, "device blocks",
                               &out->blocks);
    }
    if (!sl_py_hashes_take(state, words->hashes, words->hash_bytes, &out->hashes) ||
        !sl_py_tables_take(state, words->tables, &out->tables)) {
        return false;
    }
    if (out->hashes.count != out->tables.each[0].count) {
        sl_py_raise_text(state, SL_ERR_INVALID, "blocks: there is one for each hash");
        return false;
    }
    request->hashes = out->hashes.count > 0 ? out->hashes.at : (const unsigned char *)"";
    request->hash_bytes = out->hashes.hash_bytes;
    request->pool_blocks = out->tables.pools ? out->tables.at : NULL;
    return true;
}

/* Key of the block before the first one. */
static bool before_take(struct py_state *state, const struct words *words, struct request *out)
{
    char *bytes = NULL;
    Py_ssize_t length = 0;
    if (words->before == NULL || words->before == Py_None) {
        return true;
    }
    if (PyBytes_AsStringAndSize(words->before, &bytes, &length) != 0) {
        return false;
    }
    if (words->hashes == NULL || length == 0 || (uint32_t)length != out->hashes.hash_bytes) {
        sl_py_raise_text(state, SL_ERR_INVALID, "before: a key as long as those of hashes");
        return false;
    }
    memcpy(out->before, bytes, (size_t)length);
    out->request.before_hash = out->before;
    return true;
}

/* Tokens a second, or a pair of these and of the token that takes twice as long as the first. */
static bool prefill_take(PyObject *prefill, struct sl_prefill *out)
{
    PyObject *rate = prefill, *doubles = NULL;
    if (prefill == NULL || prefill == Py_None) {
        return true;
    }
    if (PyTuple_Check(prefill) && !PyArg_ParseTuple(prefill, "OO:prefill", &rate, &doubles)) {
        return false;
    }
    return sl_glue_u64(rate, &out->tokens_per_s) &&
           (doubles == NULL || sl_glue_u64(doubles, &out->doubles_at_token));
}

/* Its length says how many layers there are. */
static bool layer_ends_take(struct py_state *state, const struct py_engine *engine,
                            const struct words *words, struct request *out)
{
    uint32_t pool_count = engine->pool_count;
    if (words->layer_ends == NULL || words->layer_ends == Py_None) {
        return true;
    }
    if (!sl_py_u32s_take(state, words->layer_ends, (Py_ssize_t)SL_LAYERS_MAX * pool_count,
                         "layer_ends", &out->layer_ends)) {
        return false;
    }
    uint32_t count = out->layer_ends.count, asked = out->request.layer_count;
    if (count == 0 || count % pool_count != 0 || (asked != 0 && asked != count / pool_count)) {
        sl_py_raise_text(state, SL_ERR_INVALID, "layer_ends: one a layer and pool");
        return false;
    }
    out->request.layer_count = count / pool_count;
    out->request.layer_ends = out->layer_ends.at;
    return true;
}

static bool request_take(struct py_state *state, const struct py_engine *engine,
                         const struct words *words, struct request *out)
{
    *out = (struct request){.request = {.extras = words->extras, .partial = words->partial != 0}};
    struct sl_op_request *request = &out->request;
    bool fine = sl_py_timeout(words->timeout, &request->timeout_ns) &&
                optional_u32(words->first_block, &request->first_block) &&
                optional_u32(words->layer_count, &request->layer_count) &&
                (words->trace_id == NULL || sl_glue_u64(words->trace_id, &request->trace_id)) &&
                sl_py_hints_take(words->hints, &request->hints) &&
                prefill_take(words->prefill, &request->prefill) && blocks_take(state, words, out) &&
                before_take(state, words, out) && events_take(words->events, out) &&
                layer_ends_take(state, engine, words, out);
    request->tokens = out->tokens.at;
    request->token_count = out->tokens.count;
    bool hashed = request->hashes != NULL;
    request->device_blocks = hashed ? out->tables.each[0].at : out->blocks.at;
    request->device_block_count = hashed ? out->hashes.count : out->blocks.count;
    return fine;
}

static void request_release(struct request *request)
{
    sl_py_u32s_release(&request->tokens);
    sl_py_u32s_release(&request->blocks);
    sl_py_u32s_release(&request->layer_ends);
    sl_py_hashes_release(&request->hashes);
    sl_py_tables_release(&request->tables);
}

enum way { WAY_STORE, WAY_LOAD, WAY_SEND, WAY_RECEIVE };

static sl_err way_start(enum way way, struct sl_engine *engine, const struct sl_op_request *request,
                        const struct sl_handover_options *handover, struct sl_op **op,
                        struct sl_error *why)
{
    switch (way) {
    case WAY_STORE:
        return sl_store_start(engine, request, op, why);
    case WAY_LOAD:
        return sl_load_start(engine, request, op, why);
    case WAY_SEND:
        return sl_handover_send_start(engine, request, handover, op, why);
    case WAY_RECEIVE:
        return sl_handover_receive_start(engine, request, handover, op, why);
    }
    return SL_ERR_INVALID;
}

/* ---- life ---- */

static void op_end(PyObject *object)
{
    struct py_op *self = (struct py_op *)object;
    struct sl_op *gone = self->op;
    self->op = NULL;
    if (gone == NULL) {
        return;
    }
    if (!sl_py_foreign(self->engine->client)) {
        sl_op_release(&gone); /* with the GIL, which sl_py_ended_ops has; it waits for nobody */
    }
    sl_py_leave(self->engine);
}

static const struct py_kind op_kind = {
    .closed = "the op is released",
    .foreign = "the op was started before a fork",
    .end = op_end,
};

static void op_dealloc(PyObject *object)
{
    struct py_op *self = (struct py_op *)object;
    op_end(object);
    Py_XDECREF((PyObject *)self->engine);
    sl_glue_free(object);
}

/* ---- starting one ---- */

/* Gives the Op. */
static PyObject *op_start(PyObject *object, enum way way, const struct words *words,
                          const struct sl_handover_options *handover)
{
    struct py_engine *engine = (struct py_engine *)object;
    struct py_state *state = sl_py_state(object);
    struct request request;
    struct py_op *self = (struct py_op *)sl_glue_new(state->op);
    if (self == NULL) {
        return NULL;
    }
    struct sl_error why = {.code = SL_OK};
    sl_err err = SL_ERR_INVALID;
    bool started = false;
    if (request_take(state, engine, words, &request) && sl_py_enter(engine)) {
        started = true;
        self->starting = true;
        request.request.context = self; /* borrowed: the op ends with it */
        PyThreadState *unlocked = PyEval_SaveThread();
        err = way_start(way, engine->engine, &request.request, handover, &self->op, &why);
        PyEval_RestoreThread(unlocked);
    }
    request_release(&request);
    self->starting = false;
    if (err == SL_OK) {
        self->engine = (struct py_engine *)Py_NewRef(object); /* with the use that was taken */
        sl_py_begin(self, &op_kind);
        return (PyObject *)self;
    }
    Py_DECREF((PyObject *)self);
    if (started) {
        sl_py_leave(engine);
        sl_py_raise(state, err, &why);
    }
    return NULL;
}

static PyObject *plain_start(PyObject *self, PyObject *args, PyObject *names, bool store)
{
    static char *keywords[] = {"tokens",     "device_blocks", "first_block", "partial",
                               "extras",     "timeout",       "trace_id",    "layer_count",
                               "events",     "hashes",        "hash_bytes",  "blocks",
                               "layer_ends", "hints",         "before",      NULL};
    static char *load_keywords[] = {"tokens",     "device_blocks", "first_block", "partial",
                                    "extras",     "timeout",       "trace_id",    "layer_count",
                                    "events",     "hashes",        "hash_bytes",  "blocks",
                                    "layer_ends", "hints",         "prefill",     NULL};
    struct words words = {.partial = 0};
    return PyArg_ParseTupleAndKeywords(
               args, names, store ? "|OO$OpzOOOOOOOOOO:store" : "|OO$OpzOOOOOOOOOO:load",
               store ? keywords : load_keywords, &words.tokens, &words.blocks, &words.first_block,
               &words.partial, &words.extras, &words.timeout, &words.trace_id, &words.layer_count,
               &words.events, &words.hashes, &words.hash_bytes, &words.tables, &words.layer_ends,
               &words.hints, store ? &words.before : &words.prefill)
               ? op_start(self, store ? WAY_STORE : WAY_LOAD, &words, NULL)
               : NULL;
}

PyObject *sl_py_store(PyObject *self, PyObject *args, PyObject *names)
{
    return plain_start(self, args, names, true);
}

PyObject *sl_py_load(PyObject *self, PyObject *args, PyObject *names)
{
    return plain_start(self, args, names, false);
}

/* ---- hand-over ---- */

static bool handover_take(const struct words *words, struct sl_handover_options *out)
{
    uint32_t mode = SL_HANDOVER_BY_ENVIRONMENT;
    bool fine = sl_glue_u64(words->id, &out->id) && optional_u32(words->mode, &mode) &&
                sl_py_timeout(words->hold, &out->hold_ns);
    out->mode = (enum sl_handover_mode)mode;
    return fine;
}

PyObject *sl_py_send(PyObject *self, PyObject *args, PyObject *names)
{
    static char *keywords[] = {"id",          "tokens", "device_blocks", "first_block", "mode",
                               "ticket",      "hold",   "extras",        "timeout",     "trace_id",
                               "layer_count", "events", "hashes",        "hash_bytes",  "blocks",
                               "partial",     "hints",  "before",        NULL};
    struct words words = {.ticket = Py_None};
    struct sl_handover_options options = {.id = 0};
    struct sl_ticket ticket;
    if (!PyArg_ParseTupleAndKeywords(args, names, "O|OO$OOOOzOOOOOOOpOO:send", keywords, &words.id,
                                     &words.tokens, &words.blocks, &words.first_block, &words.mode,
                                     &words.ticket, &words.hold, &words.extras, &words.timeout,
                                     &words.trace_id, &words.layer_count, &words.events,
                                     &words.hashes, &words.hash_bytes, &words.tables,
                                     &words.partial, &words.hints, &words.before) ||
        !handover_take(&words, &options)) {
        return NULL;
    }
    if (words.ticket != Py_None) {
        if (!sl_py_plain_take(words.ticket, &ticket, sizeof ticket, "ticket")) {
            return NULL;
        }
        options.ticket = &ticket;
    }
    return op_start(self, WAY_SEND, &words, &options);
}

PyObject *sl_py_receive(PyObject *self, PyObject *args, PyObject *names)
{
    static char *keywords[] = {"id",          "tokens", "device_blocks", "first_block", "mode",
                               "receipt",     "node",   "extras",        "timeout",     "trace_id",
                               "layer_count", "events", "hashes",        "hash_bytes",  "blocks",
                               "partial",     "hints",  "before",        NULL};
    struct words words = {.receipt = Py_None};
    struct sl_handover_options options = {.id = 0};
    struct sl_receipt receipt;
    if (!PyArg_ParseTupleAndKeywords(args, names, "O|OO$OOOzzOOOOOOOpOO:receive", keywords,
                                     &words.id, &words.tokens, &words.blocks, &words.first_block,
                                     &words.mode, &words.receipt, &options.from, &words.extras,
                                     &words.timeout, &words.trace_id, &words.layer_count,
                                     &words.events, &words.hashes, &words.hash_bytes, &words.tables,
                                     &words.partial, &words.hints, &words.before) ||
        !handover_take(&words, &options)) {
        return NULL;
    }
    if (words.receipt != Py_None) {
        if (!sl_py_plain_take(words.receipt, &receipt, sizeof receipt, "receipt")) {
            return NULL;
        }
        options.receipt = &receipt;
    }
    return op_start(self, WAY_RECEIVE, &words, &options);
}

/* ---- ends of ops ---- */

/* An op that another thread has started and not given to its caller yet. The caller holds it. */
static void op_settle(const struct py_op *self)
{
    while (self->starting) {
        PyThreadState *unlocked = PyEval_SaveThread();
        (void)nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
        PyEval_RestoreThread(unlocked);
    }
}

/* Appends the op and its result; false: an exception is set. */
static bool ended_add(struct py_state *state, struct py_op *self, PyObject *list)
{
    struct sl_op_result result;
    op_settle(self);
    if (!self->life.open) {
        return true; /* released meanwhile */
    }
    if (sl_op_poll(self->op, &result) != SL_OK) { /* waits for nobody */
        return true;
    }
    PyObject *told = result_of(state, &result);
    PyObject *pair = told == NULL ? NULL : PyTuple_Pack(2, (PyObject *)self, told);
    bool fine = pair != NULL && PyList_Append(list, pair) == 0;
    Py_XDECREF(told);
    Py_XDECREF(pair);
    return fine;
}

/* The GIL is kept from when an op is given until its object is held: no op is released then. */
PyObject *sl_py_ended_ops(PyObject *object, PyObject *none)
{
    struct py_client *client = (struct py_client *)object;
    struct sl_op *ops[ENDED_MAX];
    PyObject *held[ENDED_MAX];
    (void)none;
    if (!sl_py_enter(client)) {
        return NULL;
    }
    PyObject *list = PyList_New(0);
    uint32_t count = list == NULL ? 0 : sl_client_ended(client->client, ops, ENDED_MAX);
    for (uint32_t i = 0; i < count; i++) {
        held[i] = Py_NewRef((PyObject *)sl_op_context(ops[i]));
    }
    bool fine = list != NULL;
    for (uint32_t i = 0; i < count; i++) {
        fine = fine && ended_add(sl_py_state(object), (struct py_op *)held[i], list);
        Py_DECREF(held[i]);
    }
    sl_py_leave(client);
    if (!fine) {
        Py_XDECREF(list);
        return NULL;
    }
    return list;
}

/* ---- an op under way ---- */

static uint64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

/* Waits in slices, so that Ctrl-C ends it. The caller uses the op. SL_OK, SL_ERR_TIMEOUT, or
 * SL_ERR_CANCELLED with an exception set. */
static sl_err op_await(struct py_op *self, uint64_t timeout_ns, struct sl_op_result *result)
{
    uint64_t began_ns = now_ns();
    for (;;) {
        uint64_t gone_ns = now_ns() - began_ns;
        uint64_t left_ns = timeout_ns == 0        ? SLICE_NS
                           : timeout_ns > gone_ns ? timeout_ns - gone_ns
                                                  : 1;
        sl_err err;
        PyThreadState *unlocked = PyEval_SaveThread();
        err = sl_op_wait(self->op, left_ns < SLICE_NS ? left_ns : SLICE_NS, result);
        PyEval_RestoreThread(unlocked);
        if (err != SL_ERR_TIMEOUT || (timeout_ns != 0 && now_ns() - began_ns >= timeout_ns)) {
            return err;
        }
        if (PyErr_CheckSignals() != 0) {
            return SL_ERR_CANCELLED;
        }
    }
}

static PyObject *op_wait(PyObject *object, PyObject *args, PyObject *names)
{
    static char *keywords[] = {"timeout", NULL};
    struct py_op *self = (struct py_op *)object;
    struct py_state *state = sl_py_state(object);
    PyObject *timeout = NULL;
    uint64_t timeout_ns;
    if (!PyArg_ParseTupleAndKeywords(args, names, "|O:wait", keywords, &timeout) ||
        !sl_py_timeout(timeout, &timeout_ns) || !sl_py_enter(self)) {
        return NULL;
    }
    struct sl_op_result result;
    sl_err err = op_await(self, timeout_ns, &result);
    sl_py_leave(self);
    if (PyErr_Occurred() != NULL) {
        return NULL;
    }
    return err == SL_OK ? result_give(state, &result)
                        : sl_py_raise_text(state, err, "the op still runs");
}

static PyObject *op_poll(PyObject *object, PyObject *none)
{
    struct py_op *self = (struct py_op *)object;
    struct py_state *state = sl_py_state(object);
    (void)none;
    if (!sl_py_enter(self)) {
        return NULL;
    }
    struct sl_op_result result;
    sl_err err;
    PyThreadState *unlocked = PyEval_SaveThread();
    err = sl_op_poll(self->op, &result);
    PyEval_RestoreThread(unlocked);
    sl_py_leave(self);
    if (err == SL_ERR_BUSY) {
        return Py_NewRef(Py_None);
    }
    return err == SL_OK ? result_give(state, &result) : sl_py_raise(state, err, NULL);
}

/* The caller uses the op. */
static bool cancel_it(struct py_op *self)
{
    struct sl_error why = {.code = SL_OK};
    sl_err err;
    PyThreadState *unlocked = PyEval_SaveThread();
    err = sl_op_cancel(self->op, &why);
    PyEval_RestoreThread(unlocked);
    if (err != SL_OK) {
        sl_py_raise(sl_py_state((PyObject *)self), err, &why);
    }
    return err == SL_OK;
}

static PyObject *op_cancel(PyObject *object, PyObject *none)
{
    struct py_op *self = (struct py_op *)object;
    (void)none;
    if (!sl_py_enter(self)) {
        return NULL;
    }
    bool asked = cancel_it(self);
    sl_py_leave(self);
    return asked ? Py_NewRef(Py_None) : NULL;
}

/* The caller uses the op. */
static bool fence_it(struct py_op *self, uint64_t timeout_ns)
{
    struct sl_error why = {.code = SL_OK};
    sl_err err;
    PyThreadState *unlocked = PyEval_SaveThread();
    err = sl_op_wait_fenced(self->op, timeout_ns, &why);
    PyEval_RestoreThread(unlocked);
    if (err != SL_OK) {
        sl_py_raise(sl_py_state((PyObject *)self), err, &why);
    }
    return err == SL_OK;
}

static PyObject *op_wait_fenced(PyObject *object, PyObject *args, PyObject *names)
{
    static char *keywords[] = {"timeout", NULL};
    struct py_op *self = (struct py_op *)object;
    PyObject *timeout = NULL;
    uint64_t timeout_ns;
    if (!PyArg_ParseTupleAndKeywords(args, names, "|O:wait_fenced", keywords, &timeout) ||
        !sl_py_timeout(timeout, &timeout_ns) || !sl_py_enter(self)) {
        return NULL;
    }
    bool fenced = fence_it(self, timeout_ns);
    sl_py_leave(self);
    return fenced ? Py_NewRef(Py_None) : NULL;
}

static PyObject *op_with(PyObject *object, PyObject *none)
{
    (void)none;
    if (!sl_py_enter(object)) {
        return NULL;
    }
    sl_py_leave(object);
    return Py_NewRef(object);
}

/* Leaving a block means that the device blocks are free: what still runs is cancelled and waited
 * for. A failure of that is raised, unless the block itself failed. */
static PyObject *op_exit(PyObject *object, PyObject *args)
{
    struct py_op *self = (struct py_op *)object;
    bool fine = true;
    if (self->life.open) {
        if (!sl_py_enter(self)) {
            return NULL;
        }
        struct sl_op_result result;
        sl_err err;
        PyThreadState *unlocked = PyEval_SaveThread();
        err = sl_op_poll(self->op, &result);
        PyEval_RestoreThread(unlocked);
        if (err == SL_ERR_BUSY && !cancel_it(self)) {
            PyErr_Clear(); /* unheard; the fence ends it, or says why not */
        }
        fine = (err == SL_OK && result.fenced) || fence_it(self, 0);
        sl_py_leave(self);
        PyObject *type = fine ? NULL : PyTuple_GetItem(args, 0);
        if (!fine && type != NULL && type != Py_None) {
            PyErr_Clear();
            fine = true;
        }
    }
    Py_XDECREF(fine ? sl_py_close(object, NULL) : NULL);
    return fine ? Py_NewRef(Py_None) : NULL;
}

/* ---- what an ended op knows ---- */

static PyObject *block_ask(PyObject *object, PyObject *block,
                           bool (*ask)(const struct sl_op *op, uint32_t block))
{
    struct py_op *self = (struct py_op *)object;
    uint32_t number = 0;
    if (!sl_py_u32(block, &number) || !sl_py_enter(self)) {
        return NULL;
    }
    struct sl_op_result result;
    sl_err err;
    bool answer = false;
    PyThreadState *unlocked = PyEval_SaveThread();
    err = sl_op_poll(self->op, &result);
    answer = err == SL_OK && ask(self->op, number);
    PyEval_RestoreThread(unlocked);
    sl_py_leave(self);
    return err == SL_OK ? PyBool_FromLong(answer)
                        : sl_py_raise_text(sl_py_state(object), err, "the op still runs");
}

static PyObject *op_block_stored(PyObject *self, PyObject *block)
{
    return block_ask(self, block, sl_op_block_stored);
}

static PyObject *op_block_existed(PyObject *self, PyObject *block)
{
    return block_ask(self, block, sl_op_block_existed);
}

static PyObject *op_block_loaded(PyObject *self, PyObject *block)
{
    return block_ask(self, block, sl_op_block_loaded);
}

static PyObject *op_receipt(PyObject *object, PyObject *none)
{
    struct py_op *self = (struct py_op *)object;
    (void)none;
    if (!sl_py_enter(self)) {
        return NULL;
    }
    struct sl_receipt receipt;
    struct sl_error why = {.code = SL_OK};
    memset(&receipt, 0, sizeof receipt); /* also what lies between the fields */
    sl_err err;
    PyThreadState *unlocked = PyEval_SaveThread();
    err = sl_op_receipt(self->op, &receipt, &why);
    PyEval_RestoreThread(unlocked);
    sl_py_leave(self);
    return err == SL_OK ? PyBytes_FromStringAndSize((const char *)&receipt, sizeof receipt)
                        : sl_py_raise(sl_py_state(object), err, &why);
}

static PyObject *op_ticket(PyObject *object, PyObject *args, PyObject *names)
{
    static char *keywords[] = {"timeout", NULL};
    struct py_op *self = (struct py_op *)object;
    PyObject *timeout = NULL;
    uint64_t timeout_ns;
    if (!PyArg_ParseTupleAndKeywords(args, names, "|O:ticket", keywords, &timeout) ||
        !sl_py_timeout(timeout, &timeout_ns) || !sl_py_enter(self)) {
        return NULL;
    }
    struct sl_ticket ticket;
    struct sl_error why = {.code = SL_OK};
    memset(&ticket, 0, sizeof ticket);
    sl_err err;
    PyThreadState *unlocked = PyEval_SaveThread();
    err = sl_op_ticket(self->op, &ticket, timeout_ns, &why);
    PyEval_RestoreThread(unlocked);
    sl_py_leave(self);
    return err == SL_OK ? PyBytes_FromStringAndSize((const char *)&ticket, sizeof ticket)
                        : sl_py_raise(sl_py_state(object), err, &why);
}

/* ---- the type ---- */

#define WORDS (METH_VARARGS | METH_KEYWORDS)
#define METHOD(name, function, how, doc)                        \
    {                                                           \
        name, (PyCFunction)(void (*)(void))(function), how, doc \
    }
static PyMethodDef op_methods[] = {
    METHOD("wait", op_wait, WORDS,
           "wait(timeout=None)\n--\n\nThe OpResult. A failed op raises the error of its code, with "
           ".result; DeadlineError "
           "without one: it still runs."),
    METHOD("poll", op_poll, METH_NOARGS, "As wait, without waiting: None while it runs."),
    METHOD("cancel", op_cancel, METH_NOARGS,
           "Asks for an early end; the op then fails with CancelledError unless it was faster."),
    METHOD("wait_fenced", op_wait_fenced, WORDS,
           "wait_fenced(timeout=None)\n--\n\nWaits until nothing touches the device blocks any "
           "more. DeadlineError: not yet."),
    METHOD("block_stored", op_block_stored, METH_O,
           "block_stored(block)\n--\n\nOf an ended store: whether this op stored the block (0: "
           "first_block)."),
    METHOD("block_existed", op_block_existed, METH_O,
           "block_existed(block)\n--\n\nOf an ended store: whether the block was there already."),
    METHOD("block_loaded", op_block_loaded, METH_O,
           "block_loaded(block)\n--\n\nOf an ended load: whether the block is in its device block. "
           "Blocks count from first_block."),
    METHOD("layer_ready", sl_py_op_layer_ready, METH_O,
           "layer_ready(layer)\n--\n\nOf a store by layers (layer_count): this layer is computed. "
           "In order."),
    METHOD("layers_ready", sl_py_op_layers_ready, METH_O,
           "layers_ready(layers)\n--\n\nOf a store by layers: all ranks have computed the first "
           "so many, whatever was said before."),
    METHOD("layer_wait", sl_py_op_layer_wait, WORDS,
           "layer_wait(layer, timeout=None)\n--\n\nOf a load by layers: waits until the layer is "
           "on the device; the number "
           "of blocks, the same for all layers."),
    METHOD("receipt", op_receipt, METH_NOARGS,
           "Of an ended send: bytes that travel with the first token."),
    METHOD("ticket", op_ticket, WORDS,
           "ticket(timeout=None)\n--\n\nOf a direct receive: bytes that prefill needs. BusyError: "
           "not yet; UnsupportedError: "
           "it goes through storage."),
    METHOD("release", sl_py_close, METH_NOARGS,
           "Lets go. An op that still runs is cancelled and not waited for: use wait_fenced before "
           "its blocks are reused."),
    METHOD("__enter__", op_with, METH_NOARGS, NULL),
    METHOD("__exit__", op_exit, METH_VARARGS,
           "Cancels what still runs, waits until the blocks are free, lets go."),
    {NULL, NULL, 0, NULL},
};
static PyGetSetDef op_attributes[] = {
    {"released", sl_py_closed, NULL, "Whether release() was called.", NULL},
    {"number", sl_py_op_number, NULL, "By which other processes of the engine know it.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot op_slots[] = {
    {Py_tp_doc, "A store, a load or a side of a hand-over under way; from an Engine."},
    {Py_tp_dealloc, (void *)op_dealloc},
    {Py_tp_methods, op_methods},
    {Py_tp_getset, op_attributes},
    {0, NULL},
};
PyType_Spec sl_py_op_spec = {
    .name = "sluice.Op",
    .basicsize = sizeof(struct py_op),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = op_slots,
};
