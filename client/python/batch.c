/* client/python/batch.c - many objects in one call. */
#include "client/python/internal.h"

/* Buffers of a batch, held until it is released. */
struct buffers {
    Py_buffer *views;
    struct sl_buffer *at;
    uint32_t count; /* of views that are held */
};

static bool buffers_take(struct py_state *state, PyObject *sequence, uint32_t count, int flags,
                         struct buffers *out)
{
    *out = (struct buffers){.count = 0};
    PyObject *items = sl_py_items(state, sequence, SL_PY_BATCH_MAX, "buffers");
    if (items == NULL) {
        return false;
    }
    bool fine = PyTuple_Size(items) == (Py_ssize_t)count;
    if (!fine) {
        sl_py_raise_text(state, SL_ERR_INVALID, "a batch has as many buffers as keys");
    }
    out->views = fine ? PyMem_Calloc((size_t)count + 1, sizeof *out->views) : NULL;
    out->at = fine ? PyMem_Calloc((size_t)count + 1, sizeof *out->at) : NULL;
    if (fine && (out->views == NULL || out->at == NULL)) {
        PyErr_NoMemory();
        fine = false;
    }
    for (uint32_t i = 0; fine && i < count; i++) {
        /* The view keeps the object alive. */
        fine =
            PyObject_GetBuffer(PyTuple_GetItem(items, (Py_ssize_t)i), &out->views[i], flags) == 0;
        if (fine) {
            out->at[i] = (struct sl_buffer){.at = out->views[i].buf,
                                            .length_bytes = (uint64_t)out->views[i].len};
            out->count++;
        }
    }
    Py_DECREF(items);
    return fine;
}

static void buffers_release(struct buffers *buffers)
{
    for (uint32_t i = 0; i < buffers->count; i++) {
        PyBuffer_Release(&buffers->views[i]);
    }
    PyMem_Free(buffers->views);
    PyMem_Free(buffers->at);
    *buffers = (struct buffers){.count = 0};
}

PyObject *sl_py_put_batch(PyObject *object, PyObject *args, PyObject *names)
{
    static char *words[] = {"keys", "values", "timeout", NULL};
    struct py_client *self = (struct py_client *)object;
    struct py_state *state = sl_py_state(object);
    PyObject *sequence, *values, *timeout = NULL, *result = NULL;
    uint64_t timeout_ns;
    if (!PyArg_ParseTupleAndKeywords(args, names, "OO|$O:put_batch", words, &sequence, &values,
                                     &timeout) ||
        !sl_py_timeout(timeout, &timeout_ns)) {
        return NULL;
    }
    struct py_keys keys;
    struct buffers from = {.count = 0};
    if (sl_py_keys_take(state, sequence, &keys) &&
        buffers_take(state, values, keys.count, PyBUF_SIMPLE, &from) && sl_py_enter(self)) {
        struct sl_error why = {.code = SL_OK};
        sl_err err;
        PyThreadState *unlocked = PyEval_SaveThread();
        err = sl_put_batch(self->client, keys.keys, from.at, keys.count, keys.codes, timeout_ns,
                           &why);
        PyEval_RestoreThread(unlocked);
        sl_py_leave(self);
        result = err == SL_OK ? sl_py_codes(keys.codes, (Py_ssize_t)keys.count)
                              : sl_py_raise(state, err, &why);
    }
    buffers_release(&from);
    sl_py_keys_release(&keys);
    return result;
}

/* ---- reading ---- */

static PyObject *lengths_list(const struct py_keys *keys, const uint64_t *lengths)
{
    PyObject *list = PyList_New((Py_ssize_t)keys->count);
    for (uint32_t i = 0; list != NULL && i < keys->count; i++) {
        sl_glue_list_put(&list, i,
                         keys->codes[i] == SL_OK ? PyLong_FromUnsignedLongLong(lengths[i])
                                                 : PyLong_FromLong(-(long)keys->codes[i]));
    }
    return list;
}

PyObject *sl_py_get_batch_into(PyObject *object, PyObject *args, PyObject *names)
{
    static char *words[] = {"keys", "buffers", "timeout", NULL};
    struct py_client *self = (struct py_client *)object;
    struct py_state *state = sl_py_state(object);
    PyObject *sequence, *targets, *timeout = NULL, *result = NULL;
    uint64_t timeout_ns;
    if (!PyArg_ParseTupleAndKeywords(args, names, "OO|$O:get_batch_into", words, &sequence,
                                     &targets, &timeout) ||
        !sl_py_timeout(timeout, &timeout_ns)) {
        return NULL;
    }
    struct py_keys keys;
    struct buffers into = {.count = 0};
    uint64_t *lengths = NULL;
    if (sl_py_keys_take(state, sequence, &keys) &&
        buffers_take(state, targets, keys.count, PyBUF_WRITABLE, &into)) {
        lengths = PyMem_Calloc((size_t)keys.count + 1, sizeof *lengths);
        if (lengths == NULL) {
            PyErr_NoMemory();
        } else if (sl_py_enter(self)) {
            struct sl_error why = {.code = SL_OK};
            sl_err err;
            PyThreadState *unlocked = PyEval_SaveThread();
            err = sl_get_batch(self->client, keys.keys, into.at, keys.count, lengths, keys.codes,
                               timeout_ns, &why);
            PyEval_RestoreThread(unlocked);
            sl_py_leave(self);
            result = err == SL_OK ? lengths_list(&keys, lengths) : sl_py_raise(state, err, &why);
        }
    }
    PyMem_Free(lengths);
    buffers_release(&into);
    sl_py_keys_release(&keys);
    return result;
}

/* One item of a batch of reads: true and *item NULL when it is there and still to be made; false:
 * raised. */
static bool item_begin(struct py_state *state, sl_err code, PyObject **item)
{
    *item = code == SL_ERR_NOT_FOUND ? Py_NewRef(Py_None) : NULL;
    if (code != SL_OK && code != SL_ERR_NOT_FOUND) {
        sl_py_raise(state, code, NULL);
        return false;
    }
    return true;
}

static PyObject *views_list(struct py_state *state, struct py_client *self,
                            const struct py_keys *keys, struct sl_view *views)
{
    PyObject *list = PyList_New((Py_ssize_t)keys->count);
    uint32_t i = 0;
    for (; list != NULL && i < keys->count; i++) {
        PyObject *item = NULL;
        bool fine = item_begin(state, keys->codes[i], &item);
        if (fine && item == NULL) {
            item = sl_py_view_new(state, self, &views[i]);
        }
        sl_glue_list_put(&list, i, item);
    }
    for (; i < keys->count; i++) { /* after a failure: pins that no View has */
        if (keys->codes[i] == SL_OK) {
            sl_view_release(self->client, &views[i]);
        }
    }
    return list;
}

static bool batch_arguments(PyObject *object, PyObject *args, PyObject *names, const char *format,
                            uint64_t *timeout_ns, struct py_keys *keys)
{
    static char *words[] = {"keys", "timeout", NULL};
    PyObject *sequence, *timeout = NULL;
    *keys = (struct py_keys){.items = NULL};
    return PyArg_ParseTupleAndKeywords(args, names, format, words, &sequence, &timeout) &&
           sl_py_timeout(timeout, timeout_ns) &&
           sl_py_keys_take(sl_py_state(object), sequence, keys);
}

PyObject *sl_py_get_pinned_batch(PyObject *object, PyObject *args, PyObject *names)
{
    struct py_client *self = (struct py_client *)object;
    struct py_state *state = sl_py_state(object);
    PyObject *result = NULL;
    uint64_t timeout_ns;
    struct py_keys keys;
    if (batch_arguments(object, args, names, "O|$O:get_pinned_batch", &timeout_ns, &keys)) {
        struct sl_view *views = PyMem_Calloc((size_t)keys.count + 1, sizeof *views);
        if (views == NULL) {
            PyErr_NoMemory();
        } else if (sl_py_enter(self)) {
            struct sl_error why = {.code = SL_OK};
            sl_err err;
            PyThreadState *unlocked = PyEval_SaveThread();
            err = sl_get_pinned_batch(self->client, keys.keys, views, keys.count, keys.codes,
                                      timeout_ns, &why);
            PyEval_RestoreThread(unlocked);
            result = err == SL_OK ? views_list(state, self, &keys, views)
                                  : sl_py_raise(state, err, &why);
            sl_py_leave(self);
        }
        PyMem_Free(views);
    }
    sl_py_keys_release(&keys);
    return result;
}

/* ---- copies: sizes first, then all at once ---- */

struct copies {
    PyObject *list; /* bytes to be filled, or None */
    struct sl_buffer *into;
    uint64_t *lengths;
};

static bool copies_make(struct copies *copies, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        PyObject *value = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)copies->lengths[i]);
        if (value == NULL) {
            return false;
        }
        copies->into[i] =
            (struct sl_buffer){.at = PyBytes_AsString(value), .length_bytes = copies->lengths[i]};
        if (PyList_SetItem(copies->list, (Py_ssize_t)i, value) != 0) {
            return false;
        }
    }
    return true;
}

/* What is missing here may come from another node; what did not fit was replaced meanwhile. Both
 * are read by themselves. */
static bool copy_settle(struct py_client *self, const struct py_keys *keys, struct copies *copies,
                        uint32_t i, uint64_t timeout_ns)
{
    PyObject *item = NULL;
    if (keys->codes[i] == SL_OK && copies->lengths[i] == copies->into[i].length_bytes) {
        return true;
    }
    if (keys->codes[i] == SL_OK || (keys->codes[i] == SL_ERR_LIMIT && copies->lengths[i] > 0)) {
        item = sl_py_value_get(self, keys->keys[i], timeout_ns);
        if (item == NULL &&
            PyErr_ExceptionMatches(sl_py_state((PyObject *)self)->errors[SL_ERR_NOT_FOUND])) {
            PyErr_Clear();
            item = Py_NewRef(Py_None);
        }
    } else if (!item_begin(sl_py_state((PyObject *)self), keys->codes[i], &item)) {
        return false;
    }
    return item != NULL && PyList_SetItem(copies->list, (Py_ssize_t)i, item) == 0;
}

/* The caller uses the client. */
static bool copies_read(struct py_client *self, struct py_keys *keys, struct copies *copies,
                        uint64_t timeout_ns)
{
    struct sl_error why = {.code = SL_OK};
    sl_err err;
    PyThreadState *unlocked = PyEval_SaveThread();
    for (uint32_t i = 0; i < keys->count; i++) {
        (void)sl_size(self->client, keys->keys[i], &copies->lengths[i]); /* else 0 */
    }
    PyEval_RestoreThread(unlocked);
    if (!copies_make(copies, keys->count)) {
        return false;
    }
    unlocked = PyEval_SaveThread();
    err = sl_get_batch(self->client, keys->keys, copies->into, keys->count, copies->lengths,
                       keys->codes, timeout_ns, &why);
    PyEval_RestoreThread(unlocked);
    if (err != SL_OK) {
        sl_py_raise(sl_py_state((PyObject *)self), err, &why);
        return false;
    }
    for (uint32_t i = 0; i < keys->count; i++) {
        if (!copy_settle(self, keys, copies, i, timeout_ns)) {
            return false;
        }
    }
    return true;
}

PyObject *sl_py_get_batch(PyObject *object, PyObject *args, PyObject *names)
{
    struct py_client *self = (struct py_client *)object;
    PyObject *result = NULL;
    uint64_t timeout_ns;
    struct py_keys keys;
    if (batch_arguments(object, args, names, "O|$O:get_batch", &timeout_ns, &keys)) {
        struct copies copies = {
            .list = PyList_New((Py_ssize_t)keys.count),
            .into = PyMem_Calloc((size_t)keys.count + 1, sizeof *copies.into),
            .lengths = PyMem_Calloc((size_t)keys.count + 1, sizeof *copies.lengths),
        };
        if (copies.list == NULL || copies.into == NULL || copies.lengths == NULL) {
            PyErr_NoMemory();
        } else if (sl_py_enter(self)) {
            result = copies_read(self, &keys, &copies, timeout_ns) ? Py_NewRef(copies.list) : NULL;
            sl_py_leave(self);
        }
        Py_XDECREF(copies.list);
        PyMem_Free(copies.into);
        PyMem_Free(copies.lengths);
    }
    sl_py_keys_release(&keys);
    return result;
}

/* ---- the rest ---- */

PyObject *sl_py_exists_batch(PyObject *object, PyObject *args, PyObject *names)
{
    static char *words[] = {"keys", NULL};
    struct py_client *self = (struct py_client *)object;
    struct py_state *state = sl_py_state(object);
    PyObject *sequence, *list = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, names, "O:exists_batch", words, &sequence)) {
        return NULL;
    }
    struct py_keys keys;
    if (sl_py_keys_take(state, sequence, &keys) && sl_py_enter(self)) {
        sl_err err;
        PyThreadState *unlocked = PyEval_SaveThread();
        err = sl_exists_batch(self->client, keys.keys, keys.count, keys.codes);
        PyEval_RestoreThread(unlocked);
        sl_py_leave(self);
        list = err == SL_OK ? PyList_New((Py_ssize_t)keys.count) : sl_py_raise(state, err, NULL);
        for (uint32_t i = 0; list != NULL && i < keys.count; i++) {
            bool known = keys.codes[i] == SL_OK || keys.codes[i] == SL_ERR_NOT_FOUND;
            PyObject *answer = known ? PyBool_FromLong(keys.codes[i] == SL_OK)
                                     : sl_py_raise(state, keys.codes[i], NULL);
            if (answer == NULL || PyList_SetItem(list, (Py_ssize_t)i, answer) != 0) {
                Py_CLEAR(list);
            }
        }
    }
    sl_py_keys_release(&keys);
    return list;
}

static PyObject *
codes_call(PyObject *object, PyObject *args, PyObject *names, const char *format,
           sl_err (*call)(struct sl_client *client, const struct sl_object_key *keys,
                          uint32_t count, sl_err *codes, uint64_t timeout_ns, struct sl_error *why))
{
    struct py_client *self = (struct py_client *)object;
    PyObject *result = NULL;
    uint64_t timeout_ns;
    struct py_keys keys;
    if (batch_arguments(object, args, names, format, &timeout_ns, &keys) && sl_py_enter(self)) {
        struct sl_error why = {.code = SL_OK};
        sl_err err;
        PyThreadState *unlocked = PyEval_SaveThread();
        err = call(self->client, keys.keys, keys.count, keys.codes, timeout_ns, &why);
        PyEval_RestoreThread(unlocked);
        sl_py_leave(self);
        result = err == SL_OK ? sl_py_codes(keys.codes, (Py_ssize_t)keys.count)
                              : sl_py_raise(sl_py_state(object), err, &why);
    }
    sl_py_keys_release(&keys);
    return result;
}

PyObject *sl_py_remove_batch(PyObject *self, PyObject *args, PyObject *names)
{
    return codes_call(self, args, names, "O|$O:remove_batch", sl_remove_batch);
}

PyObject *sl_py_prefetch(PyObject *self, PyObject *args, PyObject *names)
{
    return codes_call(self, args, names, "O|$O:prefetch", sl_prefetch_batch);
}
