/* client/python/pool.c - the type DevicePool: device memory that has one owner. */
#include "client/python/internal.h"

#define POOLS_MAX 4096u

struct py_pool {
    struct py_life life;      /* used by engines and buffers */
    struct py_client *client; /* a use of it, until released */
    struct sl_pool *pool;
    Py_ssize_t exports, engines; /* uses by buffers and by engines */
    bool owner, calling, revoking;
};

/* ---- life ---- */

static void pool_end(PyObject *object)
{
    struct py_pool *self = (struct py_pool *)object;
    struct sl_pool *gone = self->pool;
    self->pool = NULL;
    if (gone == NULL) {
        return;
    }
    if (!sl_py_foreign(self->client)) {
        PyThreadState *unlocked = PyEval_SaveThread();
        sl_pool_release(&gone);
        PyEval_RestoreThread(unlocked);
    }
    sl_py_leave(self->client);
}

static const struct py_kind pool_kind = {
    .closed = "the pool is released",
    .foreign = "the pool was made before a fork",
    .end = pool_end,
};

static void pool_dealloc(PyObject *object)
{
    struct py_pool *self = (struct py_pool *)object;
    pool_end(object); /* whoever used it held a reference */
    Py_XDECREF((PyObject *)self->client);
    sl_glue_free(object);
}

const struct sl_pool *sl_py_pool_lend(struct py_state *state, PyObject *object)
{
    struct py_pool *self = (struct py_pool *)object;
    if (Py_TYPE(object) != state->pool) {
        PyErr_SetString(PyExc_TypeError, "a DevicePool is needed");
        return NULL;
    }
    if (self->revoking) {
        sl_py_raise_text(state, SL_ERR_STALE, "the pool is being revoked");
        return NULL;
    }
    if (!sl_py_enter(self)) {
        return NULL;
    }
    self->engines++;
    return self->pool;
}

void sl_py_pool_return(PyObject *object)
{
    ((struct py_pool *)object)->engines--;
    sl_py_leave(object);
}

/* ---- getting one ---- */

enum way { WAY_CREATE, WAY_AWAIT, WAY_ACQUIRE };

static sl_err way_go(enum way way, struct sl_client *client, const struct sl_pool_key *key,
                     uint64_t length_bytes, uint64_t timeout_ns, struct sl_pool **out,
                     struct sl_error *why)
{
    switch (way) {
    case WAY_CREATE:
        return sl_pool_create(client, key, length_bytes, timeout_ns, out, why);
    case WAY_AWAIT:
        return sl_pool_await(client, key, timeout_ns, out, why);
    case WAY_ACQUIRE:
        return sl_pool_acquire(client, key, length_bytes, timeout_ns, out, why);
    }
    return SL_ERR_INVALID;
}

static PyObject *pool_get(PyObject *object, enum way way, const struct sl_pool_key *key,
                          uint64_t length_bytes, uint64_t timeout_ns)
{
    struct py_client *client = (struct py_client *)object;
    struct py_state *state = sl_py_state(object);
    struct py_pool *self = (struct py_pool *)sl_glue_new(state->pool);
    if (self == NULL || !sl_py_enter(client)) {
        Py_XDECREF((PyObject *)self);
        return NULL;
    }
    struct sl_error why = {.code = SL_OK};
    PyThreadState *unlocked = PyEval_SaveThread();
    sl_err err = way_go(way, client->client, key, length_bytes, timeout_ns, &self->pool, &why);
    PyEval_RestoreThread(unlocked);
    if (err == SL_OK) {
        self->client = (struct py_client *)Py_NewRef(object); /* with the use that was taken */
        self->owner = way == WAY_CREATE;
        sl_py_begin(self, &pool_kind);
        return (PyObject *)self;
    }
    Py_DECREF((PyObject *)self);
    sl_py_leave(client);
    return sl_py_raise(state, err, &why);
}

static PyObject *pool_ask_for(PyObject *object, PyObject *args, PyObject *names, const char *format,
                              enum way way)
{
    static char *with_length[] = {"deployment", "rank", "pool", "length", "timeout", NULL};
    static char *without[] = {"deployment", "rank", "pool", "timeout", NULL};
    struct sl_pool_key key = {.rank = 0};
    PyObject *rank, *length = NULL, *timeout = NULL;
    uint64_t length_bytes = 0, timeout_ns;
    int parsed =
        way == WAY_AWAIT
            ? PyArg_ParseTupleAndKeywords(args, names, format, without, &key.deployment, &rank,
                                          &key.pool, &timeout)
            : PyArg_ParseTupleAndKeywords(args, names, format, with_length, &key.deployment, &rank,
                                          &key.pool, &length, &timeout);
    if (!parsed || !sl_py_u32(rank, &key.rank) ||
        (length != NULL && !sl_glue_u64(length, &length_bytes)) ||
        !sl_py_timeout(timeout, &timeout_ns)) {
        return NULL;
    }
    return pool_get(object, way, &key, length_bytes, timeout_ns);
}

PyObject *sl_py_pool_create(PyObject *self, PyObject *args, PyObject *names)
{
    return pool_ask_for(self, args, names, "sOsO|$O:pool_create", WAY_CREATE);
}

PyObject *sl_py_pool_await(PyObject *self, PyObject *args, PyObject *names)
{
    return pool_ask_for(self, args, names, "sOs|$O:pool_await", WAY_AWAIT);
}

PyObject *sl_py_pool_acquire(PyObject *self, PyObject *args, PyObject *names)
{
    return pool_ask_for(self, args, names, "sOsO|$O:pool_acquire", WAY_ACQUIRE);
}

/* ---- what is done with it ---- */

static sl_err publish(struct sl_pool *pool, uint64_t timeout_ns, struct sl_error *why)
{
    return sl_pool_publish(pool, NULL, timeout_ns, why);
}

/* libsluice wants one call at a time. */
static PyObject *pool_call(PyObject *object, PyObject *args, PyObject *names, const char *format,
                           sl_err (*call)(struct sl_pool *pool, uint64_t timeout_ns,
                                          struct sl_error *why))
{
    static char *words[] = {"timeout", NULL};
    struct py_pool *self = (struct py_pool *)object;
    PyObject *timeout = NULL;
    uint64_t timeout_ns;
    if (!PyArg_ParseTupleAndKeywords(args, names, format, words, &timeout) ||
        !sl_py_timeout(timeout, &timeout_ns) || !sl_py_enter(self)) {
        return NULL;
    }
    struct sl_error why = {.code = SL_OK};
    sl_err err = SL_ERR_BUSY;
    if (!self->calling) {
        self->calling = true;
        PyThreadState *unlocked = PyEval_SaveThread();
        err = call(self->pool, timeout_ns, &why);
        PyEval_RestoreThread(unlocked);
        self->calling = false;
    } /* else another thread's call is under way */
    sl_py_leave(self);
    return err == SL_OK ? Py_NewRef(Py_None) : sl_py_raise(sl_py_state(object), err, &why);
}

static PyObject *pool_publish(PyObject *self, PyObject *args, PyObject *names)
{
    return pool_call(self, args, names, "|O:publish", publish);
}

static PyObject *pool_wait_over(PyObject *self, PyObject *args, PyObject *names)
{
    return pool_call(self, args, names, "|O:wait_over", sl_pool_wait_over);
}

static PyObject *pool_revoke(PyObject *object, PyObject *args, PyObject *names)
{
    struct py_pool *self = (struct py_pool *)object;
    /* What Sluice made is unmapped here by it. */
    if (!self->owner && (self->exports > 0 || self->engines > 0)) {
        PyErr_SetString(PyExc_BufferError,
                        "a memoryview, an array or an engine still uses the pool's memory");
        return NULL;
    }
    bool was_revoking = self->revoking;
    self->revoking = true;
    PyObject *result = pool_call(object, args, names, "|O:revoke", sl_pool_revoke);
    self->revoking = was_revoking;
    return result;
}

static int pool_getbuffer(PyObject *object, Py_buffer *buffer, int flags)
{
    struct py_pool *self = (struct py_pool *)object;
    buffer->obj = NULL;
    if (!self->life.open || self->revoking || sl_py_foreign(self->client)) {
        PyErr_SetString(PyExc_BufferError, "the pool is released, or being revoked");
        return -1;
    }
    void *at = sl_pool_at(self->pool);
    if (at == NULL) {
        PyErr_SetString(PyExc_BufferError, "the pool's memory is not mapped here");
        return -1;
    }
    if (PyBuffer_FillInfo(buffer, object, at, (Py_ssize_t)sl_pool_length(self->pool), 0, flags) !=
        0) {
        return -1;
    }
    sl_py_hold(self);
    self->exports++;
    return 0;
}

static void pool_releasebuffer(PyObject *object, Py_buffer *buffer)
{
    (void)buffer;
    ((struct py_pool *)object)->exports--;
    sl_py_leave(object);
}

static PyObject *pool_number(PyObject *object, uint64_t (*ask)(const struct sl_pool *pool))
{
    struct py_pool *self = (struct py_pool *)object;
    if (!sl_py_enter(self)) {
        return NULL;
    }
    PyObject *number = PyLong_FromUnsignedLongLong(ask(self->pool));
    sl_py_leave(self);
    return number;
}

static PyObject *pool_length(PyObject *object, void *none)
{
    (void)none;
    return pool_number(object, sl_pool_length);
}

static PyObject *pool_epoch(PyObject *object, void *none)
{
    (void)none;
    return pool_number(object, sl_pool_epoch);
}

/* ---- the table ---- */

static PyStructSequence_Field pool_info_fields[] = {
    {"deployment", NULL},
    {"rank", NULL},
    {"pool", NULL},
    {"state", "absent (somebody waits for it), allocating, ready, revoking"},
    {"epoch", NULL},
    {"length", "bytes"},
    {"by_sluice", NULL},
    {"owner", NULL},
    {"owner_pid", "0: gone"},
    {"mapper_count", NULL},
    {"waiter_count", NULL},
    {"mappers", "names; cut when there are many"},
    {NULL, NULL},
};
PyStructSequence_Desc sl_py_pool_info_desc = {
    "sluice.PoolInfo", "A row of the node's table of pools.", pool_info_fields, 12};

static PyObject *pool_info_of(struct py_state *state, const struct sl_pool_info *info)
{
    PyObject *const fields[] = {
        sl_glue_text(info->deployment),
        PyLong_FromUnsignedLong(info->rank),
        sl_glue_text(info->pool),
        sl_glue_text(info->state),
        PyLong_FromUnsignedLongLong(info->epoch),
        PyLong_FromUnsignedLongLong(info->length_bytes),
        PyBool_FromLong(info->by_sluice),
        sl_glue_text(info->owner),
        PyLong_FromUnsignedLong(info->owner_pid),
        PyLong_FromUnsignedLong(info->mapper_count),
        PyLong_FromUnsignedLong(info->waiter_count),
        sl_glue_text(info->mappers),
    };
    return sl_py_struct(state->pool_info, fields, 12);
}

PyObject *sl_py_pools(PyObject *object, PyObject *args, PyObject *names)
{
    static char *words[] = {"timeout", NULL};
    struct py_client *self = (struct py_client *)object;
    struct py_state *state = sl_py_state(object);
    PyObject *timeout = NULL;
    uint64_t timeout_ns;
    if (!PyArg_ParseTupleAndKeywords(args, names, "|$O:pools", words, &timeout) ||
        !sl_py_timeout(timeout, &timeout_ns)) {
        return NULL;
    }
    struct sl_pool_info *infos = PyMem_Calloc(POOLS_MAX, sizeof *infos);
    if (infos == NULL) {
        return PyErr_NoMemory();
    }
    PyObject *list = NULL;
    if (sl_py_enter(self)) {
        uint32_t count = 0;
        struct sl_error why = {.code = SL_OK};
        PyThreadState *unlocked = PyEval_SaveThread();
        sl_err err = sl_pools(self->client, infos, POOLS_MAX, &count, timeout_ns, &why);
        PyEval_RestoreThread(unlocked);
        sl_py_leave(self);
        count = count > POOLS_MAX ? POOLS_MAX : count;
        list = err == SL_OK ? PyList_New((Py_ssize_t)count) : sl_py_raise(state, err, &why);
        for (uint32_t i = 0; list != NULL && i < count; i++) {
            PyObject *info = pool_info_of(state, &infos[i]);
            if (info == NULL || PyList_SetItem(list, (Py_ssize_t)i, info) != 0) {
                Py_CLEAR(list);
            }
        }
    }
    PyMem_Free(infos);
    return list;
}

/* ---- the type ---- */

#define WORDS (METH_VARARGS | METH_KEYWORDS)
#define METHOD(name, function, how, doc)                        \
    {                                                           \
        name, (PyCFunction)(void (*)(void))(function), how, doc \
    }
static PyMethodDef pool_methods[] = {
    METHOD("publish", pool_publish, WORDS, "publish(timeout=None)\n--\n\nIts owner: it is ready."),
    METHOD("wait_over", pool_wait_over, WORDS,
           "wait_over(timeout=None)\n--\n\nWaits until the memory is over: revoked, its owner "
           "dead, or forgotten. "
           "DeadlineError: it stands."),
    METHOD("revoke", pool_revoke, WORDS,
           "revoke(timeout=None)\n--\n\nAll others unmap it; returns when they did."),
    METHOD("release", sl_py_close, METH_NOARGS,
           "Unmaps it and says so: now, or when the last engine, memoryview or array over it is "
           "gone."),
    METHOD("__enter__", sl_py_with, METH_NOARGS, NULL),
    METHOD("__exit__", sl_py_exit, METH_VARARGS, NULL),
    {NULL, NULL, 0, NULL},
};
static PyGetSetDef pool_attributes[] = {
    {"length", pool_length, NULL, "Bytes.", NULL},
    {"epoch", pool_epoch, NULL, "Of this memory; never reused.", NULL},
    {"released", sl_py_closed, NULL, "Whether release() was called.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot pool_slots[] = {
    {Py_tp_doc, "Device memory of one pool of one rank that has one owner; from "
                "Client.pool_create, pool_await and "
                "pool_acquire. On the host device memoryview(pool) is its memory, writable."},
    {Py_tp_dealloc, (void *)pool_dealloc},
    {Py_tp_methods, pool_methods},
    {Py_tp_getset, pool_attributes},
    {Py_bf_getbuffer, (void *)pool_getbuffer},
    {Py_bf_releasebuffer, (void *)pool_releasebuffer},
    {0, NULL},
};
PyType_Spec sl_py_pool_spec = {
    .name = "sluice.DevicePool",
    .basicsize = sizeof(struct py_pool),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = pool_slots,
};
