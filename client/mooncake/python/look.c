/* client/mooncake/python/look.c - existence, size, removal, descriptors. */
#include "client/mooncake/python/internal.h"

#include <string.h>

/* ---- existence and size ---- */

static const struct mc_call is_exist_call = {"is_exist", "int", {{"key", MC_KEY, NULL}}};
MC_METHOD(mc_is_exist)
{
    struct mc_value values[MC_ARGUMENTS_MAX];
    if (!mc_take(self, &is_exist_call, args, count, names, values)) {
        return NULL;
    }
    struct sl_store *store = mc_store_of(self);
    int code = SL_STORE_INVALID;
    PyThreadState *unlocked = PyEval_SaveThread();
    sl_store_exist(store, &values[0].key, 1, &code);
    PyEval_RestoreThread(unlocked);
    mc_release(&is_exist_call, values);
    return PyLong_FromLong(code);
}

static const struct mc_call get_size_call = {"get_size", "int", {{"key", MC_KEY, NULL}}};
MC_METHOD(mc_get_size)
{
    struct mc_value values[MC_ARGUMENTS_MAX];
    if (!mc_take(self, &get_size_call, args, count, names, values)) {
        return NULL;
    }
    struct sl_store *store = mc_store_of(self);
    PyThreadState *unlocked = PyEval_SaveThread();
    int64_t result = sl_store_size(store, values[0].key);
    PyEval_RestoreThread(unlocked);
    mc_release(&get_size_call, values);
    return PyLong_FromLongLong(result);
}

/* exists, or removes: keys in, codes out. */
static PyObject *keys_call(PyObject *self, struct mc_keys *keys, bool removes, bool force)
{
    struct sl_store *store = mc_store_of(self);
    int *codes = PyMem_Malloc(((size_t)keys->count + 1) * sizeof *codes);
    if (codes == NULL) {
        return PyErr_NoMemory();
    }
    PyThreadState *unlocked = PyEval_SaveThread();
    if (removes) {
        sl_store_remove(store, keys->at, keys->count, force, codes);
    } else {
        sl_store_exist(store, keys->at, keys->count, codes);
    }
    PyEval_RestoreThread(unlocked);
    PyObject *list = mc_codes(codes, keys->count);
    PyMem_Free(codes);
    return list;
}

static const struct mc_call batch_is_exist_call = {
    "batch_is_exist", "list[int]", {{"keys", MC_KEYS, NULL}}};
MC_METHOD(mc_batch_is_exist)
{
    struct mc_value values[MC_ARGUMENTS_MAX];
    if (!mc_take(self, &batch_is_exist_call, args, count, names, values)) {
        return NULL;
    }
    PyObject *result = keys_call(self, &values[0].keys, false, false);
    mc_release(&batch_is_exist_call, values);
    return result;
}

/* ---- removal ---- */

static const struct mc_call remove_call = {
    "remove", "int", {{"key", MC_KEY, NULL}, {"force", MC_FLAG, "False"}}};
MC_METHOD(mc_remove)
{
    struct mc_value values[MC_ARGUMENTS_MAX];
    if (!mc_take(self, &remove_call, args, count, names, values)) {
        return NULL;
    }
    struct sl_store *store = mc_store_of(self);
    int code = SL_STORE_INVALID;
    PyThreadState *unlocked = PyEval_SaveThread();
    sl_store_remove(store, &values[0].key, 1, values[1].flag, &code);
    PyEval_RestoreThread(unlocked);
    mc_release(&remove_call, values);
    return PyLong_FromLong(code);
}

static const struct mc_call batch_remove_call = {
    "batch_remove", "list[int]", {{"keys", MC_KEYS, NULL}, {"force", MC_FLAG, "False"}}};
MC_METHOD(mc_batch_remove)
{
    struct mc_value values[MC_ARGUMENTS_MAX];
    if (!mc_take(self, &batch_remove_call, args, count, names, values)) {
        return NULL;
    }
    PyObject *result = keys_call(self, &values[0].keys, true, values[1].flag);
    mc_release(&batch_remove_call, values);
    return result;
}

static PyObject *remove_matching(PyObject *self, const struct sl_object_key *pattern, bool force)
{
    struct sl_store *store = mc_store_of(self);
    PyThreadState *unlocked = PyEval_SaveThread();
    int64_t result = sl_store_remove_matching(store, pattern, force);
    PyEval_RestoreThread(unlocked);
    return PyLong_FromLongLong(result);
}

static const struct mc_call remove_by_regex_call = {
    "remove_by_regex", "int", {{"regex_pattern", MC_KEY, NULL}, {"force", MC_FLAG, "False"}}};
MC_METHOD(mc_remove_by_regex)
{
    struct mc_value values[MC_ARGUMENTS_MAX];
    if (!mc_take(self, &remove_by_regex_call, args, count, names, values)) {
        return NULL;
    }
    PyObject *result = remove_matching(self, &values[0].key, values[1].flag);
    mc_release(&remove_by_regex_call, values);
    return result;
}

static const struct mc_call remove_all_call = {"remove_all", "int", {{"force", MC_FLAG, "False"}}};
MC_METHOD(mc_remove_all)
{
    struct mc_value values[MC_ARGUMENTS_MAX];
    if (!mc_take(self, &remove_all_call, args, count, names, values)) {
        return NULL;
    }
    PyObject *result = remove_matching(self, NULL, values[0].flag);
    mc_release(&remove_all_call, values);
    return result;
}

static const struct mc_call replica_clear_call = {
    "batch_replica_clear", "list[str]", {{"keys", MC_KEYS, NULL}, {"segment_name", MC_TEXT, "''"}}};
MC_METHOD(mc_batch_replica_clear)
{
    struct mc_value values[MC_ARGUMENTS_MAX];
    if (!mc_take(self, &replica_clear_call, args, count, names, values)) {
        return NULL;
    }
    struct mc_keys *keys = &values[0].keys;
    const char *segment = values[1].object == NULL ? "" : values[1].key.at;
    struct sl_store *store = mc_store_of(self);
    bool *cleared = PyMem_Malloc((size_t)keys->count + 1);
    PyObject *list = mc_made(cleared) ? PyList_New(0) : NULL;
    if (list != NULL) {
        PyThreadState *unlocked = PyEval_SaveThread();
        sl_store_replica_clear(store, keys->at, keys->count, segment, cleared);
        PyEval_RestoreThread(unlocked);
    }
    for (uint32_t i = 0; list != NULL && i < keys->count; i++) {
        PyObject *name = cleared[i] ? mc_key_name(PyList_GetItem(keys->held, (Py_ssize_t)i)) : NULL;
        if (cleared[i] && (name == NULL || PyList_Append(list, name) != 0)) {
            Py_CLEAR(list);
        }
        Py_XDECREF(name);
    }
    PyMem_Free(cleared);
    mc_release(&replica_clear_call, values);
    return list;
}

/* ---- descriptors ---- */

struct describing {
    PyThreadState *unlocked;
    struct mc_state *state;
    PyObject **lists; /* NULL: no replica yet */
};

/* Called without the GIL. */
static bool describing_each(void *context, uint32_t item, const struct sl_store_replica *replica)
{
    struct describing *describing = context;
    PyEval_RestoreThread(describing->unlocked);
    PyObject **list = &describing->lists[item];
    *list = *list == NULL ? PyList_New(0) : *list;
    PyObject *made = *list == NULL ? NULL : mc_replica_new(describing->state, replica);
    bool fine = made != NULL && PyList_Append(*list, made) == 0;
    Py_XDECREF(made);
    describing->unlocked = PyEval_SaveThread();
    return fine;
}

/* lists[i]: the key's descriptors, or NULL. False with an exception. */
static bool describe(PyObject *self, struct sl_object_key *keys, uint32_t count, PyObject **lists)
{
    struct sl_store *store = mc_store_of(self);
    struct describing describing = {.state = mc_state_of(self), .lists = lists};
    describing.unlocked = PyEval_SaveThread();
    (void)sl_store_replicas(store, keys, count, describing_each, &describing);
    PyEval_RestoreThread(describing.unlocked);
    return PyErr_Occurred() == NULL;
}

static const struct mc_call replica_desc_call = {
    "get_replica_desc", "list[mooncake.store.ReplicaDescriptor]", {{"key", MC_KEY, NULL}}};
MC_METHOD(mc_get_replica_desc)
{
    struct mc_value values[MC_ARGUMENTS_MAX];
    if (!mc_take(self, &replica_desc_call, args, count, names, values)) {
        return NULL;
    }
    PyObject *list = NULL;
    if (!describe(self, &values[0].key, 1, &list)) {
        Py_CLEAR(list);
    } else if (list == NULL) {
        list = PyList_New(0);
    }
    mc_release(&replica_desc_call, values);
    return list;
}

static const struct mc_call batch_replica_desc_call = {
    "batch_get_replica_desc",
    "dict[str, list[mooncake.store.ReplicaDescriptor]]",
    {{"keys", MC_KEYS, NULL}}};
MC_METHOD(mc_batch_get_replica_desc)
{
    struct mc_value values[MC_ARGUMENTS_MAX];
    if (!mc_take(self, &batch_replica_desc_call, args, count, names, values)) {
        return NULL;
    }
    struct mc_keys *keys = &values[0].keys;
    PyObject **lists = PyMem_Calloc((size_t)keys->count + 1, sizeof(void *));
    PyObject *dict = NULL;
    if (lists == NULL) {
        PyErr_NoMemory();
    } else if (describe(self, keys->at, keys->count, lists)) {
        dict = PyDict_New();
    }
    for (uint32_t i = 0; lists != NULL && i < keys->count; i++) {
        bool told = dict != NULL && lists[i] != NULL;
        PyObject *name = told ? mc_key_name(PyList_GetItem(keys->held, (Py_ssize_t)i)) : NULL;
        if (told && (name == NULL || PyDict_SetItem(dict, name, lists[i]) != 0)) {
            Py_CLEAR(dict);
        }
        Py_XDECREF(name);
        Py_XDECREF(lists[i]);
    }
    PyMem_Free(lists);
    mc_release(&batch_replica_desc_call, values);
    return dict;
}
