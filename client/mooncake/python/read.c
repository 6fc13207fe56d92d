/* client/mooncake/python/read.c - getting: as bytes, as buffers, and to addresses. */
#include "client/mooncake/python/internal.h"

#include <string.h>

/* ---- as bytes ---- */

struct getting {
    PyThreadState *unlocked;
    PyObject **values; /* bytes, or NULL */
    bool failed;       /* with an exception */
};

/* Makes bytes for what is new or grew; called without the GIL. */
static bool getting_make(void *context, const uint64_t *lengths, void **places, uint32_t count)
{
    struct getting *getting = context;
    PyEval_RestoreThread(getting->unlocked);
    for (uint32_t i = 0; i < count && !getting->failed; i++) {
        if (lengths[i] == 0) {
            continue;
        }
        Py_XDECREF(getting->values[i]);
        getting->values[i] = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)lengths[i]);
        places[i] = getting->values[i] == NULL ? NULL : PyBytes_AsString(getting->values[i]);
        getting->failed = getting->values[i] == NULL;
    }
    getting->unlocked = PyEval_SaveThread();
    return !getting->failed;
}

/* values[i]: its bytes, b"" when there are none. False with an exception. */
static bool get_values(PyObject *self, struct sl_object_key *keys, uint32_t count,
                       PyObject **values)
{
    int64_t *results = PyMem_Malloc(((size_t)count + 1) * sizeof *results);
    if (results == NULL) {
        PyErr_NoMemory();
        return false;
    }
    struct sl_store *store = mc_store_of(self);
    struct getting getting = {.values = values};
    getting.unlocked = PyEval_SaveThread();
    sl_store_read_whole(store, keys, count, getting_make, &getting, results);
    PyEval_RestoreThread(getting.unlocked);
    for (uint32_t i = 0; i < count && !getting.failed; i++) {
        if (results[i] < 0 || values[i] == NULL) {
            Py_XDECREF(values[i]);
            values[i] = PyBytes_FromStringAndSize(NULL, 0);
        } else if (PyBytes_Size(values[i]) != (Py_ssize_t)results[i]) { /* it became smaller */
            PyObject *shorter =
                PyBytes_FromStringAndSize(PyBytes_AsString(values[i]), (Py_ssize_t)results[i]);
            Py_DECREF(values[i]);
            values[i] = shorter;
        }
        getting.failed = values[i] == NULL;
    }
    PyMem_Free(results);
    return !getting.failed;
}

static const struct mc_call get_call = {"get", "bytes", {{"key", MC_KEY, NULL}}};
MC_METHOD(mc_get)
{
    struct mc_value values[MC_ARGUMENTS_MAX];
    if (!mc_take(self, &get_call, args, count, names, values)) {
        return NULL;
    }
    PyObject *value = NULL;
    if (!get_values(self, &values[0].key, 1, &value)) {
        Py_CLEAR(value);
    }
    mc_release(&get_call, values);
    return value;
}

static PyObject *list_of(PyObject **values, uint32_t count)
{
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (uint32_t i = 0; i < count; i++) {
        PyObject *value = values[i];
        values[i] = NULL;
        if (list == NULL) {
            Py_XDECREF(value);
        } else if (PyList_SetItem(list, (Py_ssize_t)i, value) != 0) {
            Py_CLEAR(list);
        }
    }
    return list;
}

static const struct mc_call get_batch_call = {
    "get_batch", "list[bytes]", {{"keys", MC_KEYS, NULL}}};
MC_METHOD(mc_get_batch)
{
    struct mc_value values[MC_ARGUMENTS_MAX];
    if (!mc_take(self, &get_batch_call, args, count, names, values)) {
        return NULL;
    }
    const struct mc_keys *keys = &values[0].keys;
    PyObject *result = NULL;
    if (keys->count == 0 || !sl_store_is_set_up(mc_store_of(self))) {
        PyObject *nothing = PyBytes_FromStringAndSize(NULL, 0);
        result = nothing == NULL ? NULL : list_of(&nothing, 1);
        mc_release(&get_batch_call, values);
        return result;
    }
    PyObject **found = PyMem_Calloc((size_t)keys->count + 1, sizeof(void *));
    if (found == NULL) {
        PyErr_NoMemory();
    } else if (get_values(self, keys->at, keys->count, found)) {
        result = list_of(found, keys->count);
    }
    for (uint32_t i = 0; found != NULL && i < keys->count; i++) {
        Py_XDECREF(found[i]);
    }
    PyMem_Free(found);
    mc_release(&get_batch_call, values);
    return result;
}

/* ---- as buffers ---- */

static void hold_unlocked(PyObject *self, struct sl_object_key *keys, uint32_t count,
                          struct sl_store_buffer **buffers, int *codes)
{
    struct sl_store *store = mc_store_of(self);
    PyThreadState *unlocked = PyEval_SaveThread();
    sl_store_hold(store, keys, count, buffers, codes);
    PyEval_RestoreThread(unlocked);
}

/* Takes the buffer. */
static PyObject *buffer_or_none(PyObject *self, struct sl_store_buffer *buffer)
{
    return buffer == NULL ? Py_NewRef(Py_None) : mc_buffer_new(mc_state_of(self), buffer);
}

static const struct mc_call get_buffer_call = {
    "get_buffer", "mooncake.store.BufferHandle | None", {{"key", MC_KEY, NULL}}};
MC_METHOD(mc_get_buffer)
{
    struct mc_value values[MC_ARGUMENTS_MAX];
    if (!mc_take(self, &get_buffer_call, args, count, names, values)) {
        return NULL;
    }
    struct sl_store_buffer *buffer = NULL;
    int code;
    hold_unlocked(self, &values[0].key, 1, &buffer, &code);
    mc_release(&get_buffer_call, values);
    return buffer_or_none(self, buffer);
}

static const struct mc_call batch_get_buffer_call = {
    "batch_get_buffer", "list[mooncake.store.BufferHandle | None]", {{"keys", MC_KEYS, NULL}}};
MC_METHOD(mc_batch_get_buffer)
{
    struct mc_value values[MC_ARGUMENTS_MAX];
    if (!mc_take(self, &batch_get_buffer_call, args, count, names, values)) {
        return NULL;
    }
    const struct mc_keys *keys = &values[0].keys;
    struct sl_store_buffer **buffers = PyMem_Calloc((size_t)keys->count + 1, sizeof(void *));
    int *codes = PyMem_Malloc(((size_t)keys->count + 1) * sizeof *codes);
    PyObject *list = NULL;
    if (buffers == NULL || codes == NULL) {
        PyErr_NoMemory();
    } else {
        hold_unlocked(self, keys->at, keys->count, buffers, codes);
        list = PyList_New((Py_ssize_t)keys->count);
    }
    for (uint32_t i = 0; list != NULL && i < keys->count; i++) {
        PyObject *item = buffer_or_none(self, buffers[i]);
        buffers[i] = NULL;
        sl_glue_list_put(&list, i, item);
    }
    for (uint32_t i = 0; buffers != NULL && i < keys->count; i++) {
        sl_store_buffer_release(&buffers[i]);
    }
    PyMem_Free(buffers);
    PyMem_Free(codes);
    mc_release(&batch_get_buffer_call, values);
    return list;
}

/* ---- to addresses ---- */

static const struct mc_call get_into_call = {
    "get_into",
    "int",
    {{"key", MC_KEY, NULL}, {"buffer_ptr", MC_NUMBER, NULL}, {"size", MC_NUMBER, NULL}}};
MC_METHOD(mc_get_into)
{
    struct mc_value values[MC_ARGUMENTS_MAX];
    if (!mc_take(self, &get_into_call, args, count, names, values)) {
        return NULL;
    }
    const struct sl_piece piece = {.at = mc_address(values[1].number),
                                   .length_bytes = values[2].number};
    struct sl_pieces item = {.key = values[0].key, .at = &piece, .count = 1};
    int64_t result = SL_STORE_INVALID;
    struct sl_store *store = mc_store_of(self);
    PyThreadState *unlocked = PyEval_SaveThread();
    sl_store_read(store, &item, 1, &result);
    PyEval_RestoreThread(unlocked);
    mc_release(&get_into_call, values);
    return PyLong_FromLongLong(result);
}

static PyObject *read_items(PyObject *self, struct sl_pieces *items, uint32_t count)
{
    int64_t *results = PyMem_Malloc(((size_t)count + 1) * sizeof *results);
    if (results == NULL) {
        return PyErr_NoMemory();
    }
    struct sl_store *store = mc_store_of(self);
    PyThreadState *unlocked = PyEval_SaveThread();
    sl_store_read(store, items, count, results);
    PyEval_RestoreThread(unlocked);
    PyObject *list = mc_results(results, count);
    PyMem_Free(results);
    return list;
}

static const struct mc_call batch_get_into_call = {
    "batch_get_into",
    "list[int]",
    {{"keys", MC_KEYS, NULL}, {"buffer_ptrs", MC_NUMBERS, NULL}, {"sizes", MC_NUMBERS, NULL}}};
MC_METHOD(mc_batch_get_into)
{
    struct mc_value values[MC_ARGUMENTS_MAX];
    if (!mc_take(self, &batch_get_into_call, args, count, names, values)) {
        return NULL;
    }
    const struct mc_keys *keys = &values[0].keys;
    const struct mc_numbers *addrs = &values[1].numbers, *sizes = &values[2].numbers;
    struct mc_items items = {.items = NULL};
    PyObject *result = NULL;
    if (addrs->count != keys->count || sizes->count != keys->count) {
        result = mc_same(SL_STORE_INVALID, keys->count);
    } else if (mc_items_single(keys, addrs, sizes, &items)) {
        result = read_items(self, items.items, keys->count);
    }
    mc_items_release(&items);
    mc_release(&batch_get_into_call, values);
    return result;
}

static const struct mc_call multi_call = {"batch_get_into_multi_buffers",
                                          "list[int]",
                                          {{"keys", MC_KEYS, NULL},
                                           {"all_buffer_ptrs", MC_LISTS, NULL},
                                           {"all_sizes", MC_LISTS, NULL},
                                           {"prefer_alloc_in_same_node", MC_FLAG, "False"}}};
MC_METHOD(mc_batch_get_into_multi_buffers)
{
    struct mc_value values[MC_ARGUMENTS_MAX];
    if (!mc_take(self, &multi_call, args, count, names, values)) {
        return NULL;
    }
    const struct mc_keys *keys = &values[0].keys;
    const struct mc_lists *addrs = &values[1].lists, *sizes = &values[2].lists;
    struct mc_items items = {.items = NULL};
    PyObject *result = NULL;
    if (addrs->count != keys->count || sizes->count != keys->count) {
        result = mc_same(SL_STORE_INVALID, keys->count);
    } else if (mc_items_make(keys, addrs, sizes, NULL, &items)) {
        result = read_items(self, items.items, keys->count);
    }
    mc_items_release(&items);
    mc_release(&multi_call, values);
    return result;
}
