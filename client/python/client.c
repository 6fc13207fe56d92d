/* client/python/client.c - the type Client: open, close, one object at a time. */
#include "client/python/internal.h"

#include <string.h>

#define GET_TRIES_MAX 16 /* a value that is replaced by another size each time it is read */

/* ---- life ---- */

static void client_end(PyObject *object)
{
    struct py_client *self = (struct py_client *)object;
    struct sl_client *gone = self->client;
    self->client = NULL;
    if (gone != NULL && !sl_py_foreign(self)) { /* a child leaves the parent's alone */
        PyThreadState *unlocked = PyEval_SaveThread();
        sl_client_close(&gone);
        PyEval_RestoreThread(unlocked);
    }
}

static const struct py_kind client_kind = {
    .closed = "the client is closed",
    .foreign = "the client was opened before a fork: open another",
    .end = client_end,
};

static void client_dealloc(PyObject *object)
{
    client_end(object); /* whoever used it held a reference */
    sl_glue_free(object);
}

/* ---- opening ---- */

/* {"op_timeout": "1s"} as ["op_timeout=1s", NULL]; the texts belong to *held, a list. */
static bool settings_of(PyObject *settings, PyObject **held, const char ***out)
{
    *held = NULL;
    *out = NULL;
    if (settings == NULL || settings == Py_None) {
        return true;
    }
    if (!PyDict_Check(settings)) {
        PyErr_SetString(PyExc_TypeError, "settings: a dict is needed");
        return false;
    }
    PyObject *pairs = PyDict_Items(settings);
    Py_ssize_t count = pairs == NULL ? -1 : PyList_Size(pairs);
    *held = count < 0 ? NULL : PyList_New(0);
    *out = *held == NULL ? NULL : PyMem_Calloc((size_t)count + 1, sizeof **out);
    bool fine = *out != NULL;
    for (Py_ssize_t i = 0; fine && i < count; i++) {
        PyObject *pair = PyList_GetItem(pairs, i);
        PyObject *text =
            PyUnicode_FromFormat("%S=%S", PyTuple_GetItem(pair, 0), PyTuple_GetItem(pair, 1));
        fine = text != NULL && PyList_Append(*held, text) == 0;
        (*out)[i] = fine ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
        fine = fine && (*out)[i] != NULL;
        Py_XDECREF(text);
    }
    Py_XDECREF(pairs);
    if (!fine && PyErr_Occurred() == NULL) {
        PyErr_NoMemory();
    }
    return fine;
}

static PyObject *client_open(PyTypeObject *type, struct sl_client_options *options)
{
    struct sl_client *opened = NULL;
    struct sl_error why = {.code = SL_OK};
    sl_err err;
    PyThreadState *unlocked = PyEval_SaveThread();
    err = sl_client_open(options, &opened, &why);
    PyEval_RestoreThread(unlocked);
    if (err != SL_OK) {
        return sl_py_raise(PyType_GetModuleState(type), err, &why);
    }
    PyObject *object = sl_glue_new(type);
    if (object == NULL) {
        unlocked = PyEval_SaveThread();
        sl_client_close(&opened);
        PyEval_RestoreThread(unlocked);
        return NULL;
    }
    ((struct py_client *)object)->client = opened;
    sl_py_begin(object, &client_kind);
    return object;
}

static PyObject *client_new(PyTypeObject *type, PyObject *args, PyObject *names)
{
    static char *words[] = {"instance", "config", "timeout", "read_only", "settings", NULL};
    struct sl_client_options options = {.api_version = SLUICE_API_VERSION};
    PyObject *timeout = NULL, *settings = NULL, *held = NULL, *object = NULL;
    int read_only = 0;
    if (!PyArg_ParseTupleAndKeywords(args, names, "|z$zOpO:Client", words, &options.instance,
                                     &options.config, &timeout, &read_only, &settings)) {
        return NULL;
    }
    const char **texts = NULL;
    options.read_only = read_only != 0;
    if (sl_py_timeout(timeout, &options.timeout_ns) && settings_of(settings, &held, &texts)) {
        options.settings = texts;
        object = client_open(type, &options);
    }
    PyMem_Free(texts);
    Py_XDECREF(held);
    return object;
}

/* ---- one object ---- */

static PyObject *client_put(PyObject *object, PyObject *args, PyObject *names)
{
    static char *words[] = {"key", "value", "timeout", NULL};
    struct py_client *self = (struct py_client *)object;
    struct py_state *state = sl_py_state(object);
    PyObject *name, *value, *timeout = NULL;
    struct sl_object_key key;
    uint64_t timeout_ns;
    Py_buffer from;
    if (!PyArg_ParseTupleAndKeywords(args, names, "OO|$O:put", words, &name, &value, &timeout) ||
        !sl_py_key(state, name, &key) || !sl_py_timeout(timeout, &timeout_ns) ||
        PyObject_GetBuffer(value, &from, PyBUF_SIMPLE) != 0) {
        return NULL;
    }
    if (!sl_py_enter(self)) {
        PyBuffer_Release(&from);
        return NULL;
    }
    struct sl_error why = {.code = SL_OK};
    sl_err err;
    PyThreadState *unlocked = PyEval_SaveThread();
    err = sl_put(self->client, key, from.buf, (uint64_t)from.len, timeout_ns, &why);
    PyEval_RestoreThread(unlocked);
    sl_py_leave(self);
    PyBuffer_Release(&from);
    if (err != SL_OK) {
        return sl_py_raise(state, err, &why);
    }
    return Py_NewRef(Py_None);
}

static PyObject *client_get_into(PyObject *object, PyObject *args, PyObject *names)
{
    static char *words[] = {"key", "buffer", "timeout", NULL};
    struct py_client *self = (struct py_client *)object;
    struct py_state *state = sl_py_state(object);
    PyObject *name, *target, *timeout = NULL;
    struct sl_object_key key;
    uint64_t timeout_ns, length_bytes = 0;
    Py_buffer into;
    if (!PyArg_ParseTupleAndKeywords(args, names, "OO|$O:get_into", words, &name, &target,
                                     &timeout) ||
        !sl_py_key(state, name, &key) || !sl_py_timeout(timeout, &timeout_ns) ||
        PyObject_GetBuffer(target, &into, PyBUF_WRITABLE) != 0) {
        return NULL;
    }
    if (!sl_py_enter(self)) {
        PyBuffer_Release(&into);
        return NULL;
    }
    const struct sl_buffer buffer = {.at = into.buf, .length_bytes = (uint64_t)into.len};
    struct sl_error why = {.code = SL_OK};
    sl_err err;
    PyThreadState *unlocked = PyEval_SaveThread();
    err = sl_get(self->client, key, buffer, &length_bytes, timeout_ns, &why);
    PyEval_RestoreThread(unlocked);
    sl_py_leave(self);
    PyBuffer_Release(&into);
    return err == SL_OK ? PyLong_FromUnsignedLongLong(length_bytes) : sl_py_raise(state, err, &why);
}

/* The size that a value has now. It may be at another node alone: a read into nothing fetches it,
 * and tells. */
static sl_err size_ask(struct sl_client *client, struct sl_object_key key, uint64_t timeout_ns,
                       uint64_t *length_bytes, struct sl_error *why)
{
    char none;
    sl_err err = sl_size(client, key, length_bytes);
    if (err == SL_ERR_NOT_FOUND) {
        const struct sl_buffer nowhere = {.at = &none, .length_bytes = 0};
        err = sl_get(client, key, nowhere, length_bytes, timeout_ns, why);
    }
    return err == SL_ERR_LIMIT && *length_bytes > 0 ? SL_OK : err;
}

PyObject *sl_py_value_get(struct py_client *self, struct sl_object_key key, uint64_t timeout_ns)
{
    struct py_state *state = sl_py_state((PyObject *)self);
    struct sl_error why = {.code = SL_OK};
    uint64_t length_bytes = 0;
    sl_err err;
    for (int tries = 0; tries < GET_TRIES_MAX; tries++) {
        PyThreadState *unlocked = PyEval_SaveThread();
        err = size_ask(self->client, key, timeout_ns, &length_bytes, &why);
        PyEval_RestoreThread(unlocked);
        if (err != SL_OK) {
            return sl_py_raise(state, err, &why);
        }
        PyObject *value = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)length_bytes);
        if (value == NULL) {
            return NULL;
        }
        const struct sl_buffer buffer = {.at = PyBytes_AsString(value),
                                         .length_bytes = length_bytes};
        unlocked = PyEval_SaveThread();
        err = sl_get(self->client, key, buffer, &length_bytes, timeout_ns, &why);
        PyEval_RestoreThread(unlocked);
        if (err == SL_OK) {
            if (length_bytes != buffer.length_bytes) { /* removed, and put anew, smaller */
                PyObject *shorter = PyBytes_FromStringAndSize(buffer.at, (Py_ssize_t)length_bytes);
                Py_DECREF(value);
                value = shorter;
            }
            return value;
        }
        Py_DECREF(value);
        if (err != SL_ERR_LIMIT || length_bytes <= buffer.length_bytes) {
            return sl_py_raise(state, err, &why);
        }
    }
    return sl_py_raise_text(state, SL_ERR_BUSY, "the value was replaced each time it was read");
}

/* Takes a key and a timeout, and enters the client. False with an exception. */
static bool key_enter(PyObject *object, PyObject *args, PyObject *names, const char *format,
                      struct sl_object_key *key, uint64_t *timeout_ns)
{
    static char *words[] = {"key", "timeout", NULL};
    PyObject *name, *timeout = NULL;
    return PyArg_ParseTupleAndKeywords(args, names, format, words, &name, &timeout) &&
           sl_py_key(sl_py_state(object), name, key) && sl_py_timeout(timeout, timeout_ns) &&
           sl_py_enter(object);
}

static PyObject *client_get(PyObject *object, PyObject *args, PyObject *names)
{
    struct py_client *self = (struct py_client *)object;
    struct sl_object_key key;
    uint64_t timeout_ns;
    if (!key_enter(object, args, names, "O|$O:get", &key, &timeout_ns)) {
        return NULL;
    }
    PyObject *value = sl_py_value_get(self, key, timeout_ns);
    sl_py_leave(self);
    return value;
}

static PyObject *client_get_pinned(PyObject *object, PyObject *args, PyObject *names)
{
    struct py_client *self = (struct py_client *)object;
    struct py_state *state = sl_py_state(object);
    struct sl_object_key key;
    uint64_t timeout_ns;
    if (!key_enter(object, args, names, "O|$O:get_pinned", &key, &timeout_ns)) {
        return NULL;
    }
    struct sl_view view = {.at = NULL};
    struct sl_error why = {.code = SL_OK};
    sl_err err;
    PyThreadState *unlocked = PyEval_SaveThread();
    err = sl_get_pinned(self->client, key, &view, timeout_ns, &why);
    PyEval_RestoreThread(unlocked);
    PyObject *result =
        err == SL_OK ? sl_py_view_new(state, self, &view) : sl_py_raise(state, err, &why);
    sl_py_leave(self);
    return result;
}

static PyObject *client_remove(PyObject *object, PyObject *args, PyObject *names)
{
    struct py_client *self = (struct py_client *)object;
    struct py_state *state = sl_py_state(object);
    struct sl_object_key key;
    uint64_t timeout_ns;
    if (!key_enter(object, args, names, "O|$O:remove", &key, &timeout_ns)) {
        return NULL;
    }
    struct sl_error why = {.code = SL_OK};
    sl_err err;
    PyThreadState *unlocked = PyEval_SaveThread();
    err = sl_remove(self->client, key, timeout_ns, &why);
    PyEval_RestoreThread(unlocked);
    sl_py_leave(self);
    if (err != SL_OK) {
        return sl_py_raise(state, err, &why);
    }
    return Py_NewRef(Py_None);
}

/* remove_all and flush: of a client as a whole. */
static PyObject *whole_call(PyObject *object, PyObject *args, PyObject *names, const char *format,
                            sl_err (*call)(struct sl_client *client, uint64_t timeout_ns,
                                           struct sl_error *why))
{
    static char *words[] = {"timeout", NULL};
    struct py_client *self = (struct py_client *)object;
    PyObject *timeout = NULL;
    uint64_t timeout_ns;
    if (!PyArg_ParseTupleAndKeywords(args, names, format, words, &timeout) ||
        !sl_py_timeout(timeout, &timeout_ns) || !sl_py_enter(self)) {
        return NULL;
    }
    struct sl_error why = {.code = SL_OK};
    sl_err err;
    PyThreadState *unlocked = PyEval_SaveThread();
    err = call(self->client, timeout_ns, &why);
    PyEval_RestoreThread(unlocked);
    sl_py_leave(self);
    if (err != SL_OK) {
        return sl_py_raise(sl_py_state(object), err, &why);
    }
    return Py_NewRef(Py_None);
}

static PyObject *client_remove_all(PyObject *object, PyObject *args, PyObject *names)
{
    return whole_call(object, args, names, "|$O:remove_all", sl_remove_all);
}

static PyObject *client_flush(PyObject *object, PyObject *args, PyObject *names)
{
    return whole_call(object, args, names, "|$O:flush", sl_flush);
}

/* ---- the type ---- */

static PyObject *client_instance(PyObject *object, void *none)
{
    struct py_client *self = (struct py_client *)object;
    (void)none;
    if (!sl_py_enter(self)) {
        return NULL;
    }
    PyObject *name = sl_glue_text(sl_client_instance(self->client));
    sl_py_leave(self);
    return name;
}

#define WORDS (METH_VARARGS | METH_KEYWORDS)
#define METHOD(name, function, how, doc)                        \
    {                                                           \
        name, (PyCFunction)(void (*)(void))(function), how, doc \
    }
static PyMethodDef client_methods[] = {
    METHOD("close", sl_py_close, METH_NOARGS,
           "No new call from now on. What views, engines and calls under way still use goes with "
           "the last of them."),
    METHOD(
        "put", client_put, WORDS,
        "put(key, value, *, timeout=None)\n--\n\nStores the bytes of any contiguous buffer, 1 byte to "
        "1 GiB; a key that exists is success and changes nothing. Put a larger one, such as a "
        "tensor, in parts, each under a key of its own."),
    METHOD("get", client_get, WORDS,
           "get(key, *, timeout=None)\n--\n\nA copy of the value, as bytes."),
    METHOD("get_into", client_get_into, WORDS,
           "get_into(key, buffer, *, timeout=None)\n--\n\nCopies the value into a writable "
           "contiguous buffer; its size. "
           "LimitError: the buffer is too small."),
    METHOD(
        "get_pinned", client_get_pinned, WORDS,
        "get_pinned(key, *, timeout=None)\n--\n\nThe value where it lies, without a copy: a View."),
    METHOD("exists", sl_py_exists, METH_O,
           "exists(key)\n--\n\nWhether this node has the key; pins nothing."),
    METHOD("size", sl_py_size, METH_O, "size(key)\n--\n\nBytes of the value."),
    METHOD("stat", sl_py_stat, METH_O, "stat(key)\n--\n\nAn ObjectInfo."),
    METHOD("remove", client_remove, WORDS,
           "remove(key, *, timeout=None)\n--\n\nRemoves it from this node."),
    METHOD("remove_all", client_remove_all, WORDS,
           "remove_all(*, timeout=None)\n--\n\nRemoves all objects of this node."),
    METHOD("list", sl_py_list, WORDS,
           "list(prefix='', *, limit=None)\n--\n\nAn ObjectInfo for each visible object whose key "
           "begins so."),
    METHOD("put_batch", sl_py_put_batch, WORDS,
           "put_batch(keys, values, *, timeout=None)\n--\n\nA code for each: 0, it is there; "
           "INVALID, no key or a value of no byte or of more than 1 GiB. At most 65,536."),
    METHOD("get_batch", sl_py_get_batch, WORDS,
           "get_batch(keys, *, timeout=None)\n--\n\nbytes for each, None for a miss; any other "
           "failure is raised."),
    METHOD("get_batch_into", sl_py_get_batch_into, WORDS,
           "get_batch_into(keys, buffers, *, timeout=None)\n--\n\nFor each the bytes read, or "
           "minus the code."),
    METHOD("get_pinned_batch", sl_py_get_pinned_batch, WORDS,
           "get_pinned_batch(keys, *, timeout=None)\n--\n\nA View for each, None for a miss; any "
           "other failure is raised."),
    METHOD("exists_batch", sl_py_exists_batch, WORDS, "exists_batch(keys)\n--\n\nA bool for each."),
    METHOD("remove_batch", sl_py_remove_batch, WORDS,
           "remove_batch(keys, *, timeout=None)\n--\n\nA code for each: 0, or 1 for what was not "
           "there."),
    METHOD("put_pages", sl_py_put_pages, WORDS,
           "put_pages(keys, indices, page, limit, addresses, strides, lengths, *, prefix='', "
           "suffixes=('',), offsets=None, counts=None, steps=None, sizes=None, "
           "timeout=None)\n--\n\nStores pages of memory where they lie, a value a suffix. A byte "
           "for each page: 0, or the code of its first value that is not there."),
    METHOD("get_pages", sl_py_get_pages, WORDS,
           "get_pages(keys, indices, page, limit, addresses, strides, lengths, *, prefix='', "
           "suffixes=('',), offsets=None, counts=None, steps=None, sizes=None, "
           "timeout=None)\n--\n\nReads values into pages. A byte for each page as of put_pages; "
           "LIMIT: the value has another size."),
    METHOD("find_pages", sl_py_find_pages, WORDS,
           "find_pages(keys, *, prefix='', suffixes=('',), elsewhere=False, "
           "timeout=None)\n--\n\nWhether all values of pages are there: a byte for each page, 0 or "
           "a code. elsewhere: other nodes are asked for what this one has not."),
    METHOD(
        "register_memory", sl_py_register_memory, METH_VARARGS,
        "register_memory(address, length, /)\n--\n\nSays that pages will lie there, which spares "
        "questions to a GPU's driver. It holds for the process."),
    METHOD("unregister_memory", sl_py_unregister_memory, METH_VARARGS,
           "unregister_memory(address, /)\n--\n\nEnds the last register_memory of that address."),
    METHOD("prefetch", sl_py_prefetch, WORDS,
           "prefetch(keys, *, timeout=None)\n--\n\nBrings values from this node's disk into memory "
           "and waits. A code for "
           "each: 0 came, EXISTS was there, NOT_FOUND, NO_SPACE, ..."),
    METHOD(
        "session_pause", sl_py_session_pause, WORDS,
        "session_pause(session_id, pause, *, timeout=None)\n--\n\nTells in the middle of a pause "
        "that the session goes on in so many seconds; 0: it is about to; None: nobody knows when. "
        "False: no op here named it lately. UnsupportedError: this node keeps no sessions."),
    METHOD("hint", sl_py_hint, WORDS,
           "hint(keys, hints, *, asked=False, lane=0, timeout=None)\n--\n\nSays what is known of "
           "values in the order of their chain, and of the session that got (asked) or put them. "
           "lane: number of a rank that has values of its own."),
    METHOD("event_fd", sl_py_event_fd, METH_NOARGS,
           "event_fd()\n--\n\nA descriptor that polls readable when ops of this client may have "
           "ended: then ended_ops() says which. It is the client's: it is only polled."),
    METHOD("ended_ops", sl_py_ended_ops, METH_NOARGS,
           "ended_ops()\n--\n\nA list of (Op, OpResult) of ops that have ended, each of them once; "
           "never waits, and raises nothing for an op that failed (result.code, result.why). An op "
           "that was released, or is not kept by anybody, is not told of."),
    METHOD("contribute", sl_py_contribute, WORDS,
           "contribute(name, length, *, timeout=None)\n--\n\nLends so many bytes of memory to the "
           "node, under a name of its own, as long as the client is open. UnsupportedError: the "
           "node has no contributions."),
    METHOD("withdraw", sl_py_withdraw, WORDS,
           "withdraw(name, *, timeout=None)\n--\n\nTakes it back; waits until nothing uses it."),
    METHOD("flush", client_flush, WORDS,
           "flush(*, timeout=None)\n--\n\nWaits until all that was stored before is durable. "
           "UnsupportedError: no disk."),
    METHOD("explain", sl_py_explain, WORDS,
           "explain(keys, *, timeout=None)\n--\n\nA Story for each of at most 64 keys: why it is a "
           "miss."),
    METHOD("nodes", sl_py_nodes, WORDS,
           "nodes(*, timeout=None)\n--\n\n(ClusterInfo of this node, [NodeInfo of each other])."),
    METHOD("engine", sl_py_engine_register, WORDS,
           "engine(name, *, pools, block_tokens, block_count, world=1, model=None, "
           "key_format='sluice', seed=None, "
           "timeout=None)\n--\n\nRegisters an engine with its pools: an Engine."),
    METHOD("pool_create", sl_py_pool_create, WORDS,
           "pool_create(deployment, rank, pool, length, *, timeout=None)\n--\n\nTakes the right to "
           "make a rank's pool: a "
           "DevicePool of zeros, to be published."),
    METHOD("pool_await", sl_py_pool_await, WORDS,
           "pool_await(deployment, rank, pool, *, timeout=None)\n--\n\nWaits until somebody has "
           "made it: a DevicePool."),
    METHOD("pool_acquire", sl_py_pool_acquire, WORDS,
           "pool_acquire(deployment, rank, pool, length, *, timeout=None)\n--\n\nThe same where "
           "Sluice makes it."),
    METHOD("pools", sl_py_pools, WORDS,
           "pools(*, timeout=None)\n--\n\nA PoolInfo for each row of the node's table of pools."),
    METHOD("handover_arrived", sl_py_handover_arrived, WORDS,
           "handover_arrived(receipts, *, timeout=None)\n--\n\nDecode: first tokens came with "
           "these receipts. A code for each."),
    METHOD("handover_end", sl_py_handover_end, WORDS,
           "handover_end(ids, *, timeout=None)\n--\n\nPrefill: what is held for these may go. A "
           "code for each."),
    METHOD("__enter__", sl_py_with, METH_NOARGS, NULL),
    METHOD("__exit__", sl_py_exit, METH_VARARGS, NULL),
    {NULL, NULL, 0, NULL},
};
static PyGetSetDef client_attributes[] = {
    {"instance", client_instance, NULL, "The node's name.", NULL},
    {"closed", sl_py_closed, NULL, "Whether close() was called.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot client_slots[] = {
    {Py_tp_doc,
     "Client(instance=None, *, config=None, timeout=None, read_only=False, settings=None)\n--\n\n"
     "A node of this machine, attached to. Calls may come from several threads; a process that was "
     "forked off "
     "opens its own. Timeouts are in seconds; None is the node's op_timeout."},
    {Py_tp_new, (void *)client_new},
    {Py_tp_dealloc, (void *)client_dealloc},
    {Py_tp_methods, client_methods},
    {Py_tp_getset, client_attributes},
    {0, NULL},
};
PyType_Spec sl_py_client_spec = {
    .name = "sluice.Client",
    .basicsize = sizeof(struct py_client),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = client_slots,
};
