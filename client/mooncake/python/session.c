/* client/mooncake/python/session.c - keys that are looked up once and moved in parts. */
#include "client/mooncake/python/internal.h"

#include <string.h>

static bool set_up(PyObject *self)
{
    return sl_store_is_set_up(mc_store_of(self));
}

/* ---- keys in, codes out ---- */

enum step { STEP_GET_START, STEP_PUT_END, STEP_PUT_REVOKE };

static void step_carry_out(struct sl_store *store, enum step step, struct mc_keys *keys, int *codes)
{
    if (step == STEP_GET_START) {
        sl_store_get_session_start(store, keys->at, keys->count, codes);
    } else {
        sl_store_put_session_end(store, keys->at, keys->count, step == STEP_PUT_END, codes);
    }
}

static PyObject *keys_step(PyObject *self, const struct mc_call *call, PyObject *const *args,
                           Py_ssize_t count, PyObject *names, enum step step)
{
    struct mc_value values[MC_ARGUMENTS_MAX];
    if (!mc_take(self, call, args, count, names, values)) {
        return NULL;
    }
    struct mc_keys *keys = &values[0].keys;
    struct sl_store *store = mc_store_of(self);
    PyObject *result = NULL;
    int *codes = PyMem_Malloc(((size_t)keys->count + 1) * sizeof *codes);
    if (codes == NULL) {
        PyErr_NoMemory();
    } else if (!set_up(self)) {
        result = PyList_New(0);
    } else {
        PyThreadState *unlocked = PyEval_SaveThread();
        step_carry_out(store, step, keys, codes);
        PyEval_RestoreThread(unlocked);
        result = mc_codes(codes, keys->count);
    }
    PyMem_Free(codes);
    mc_release(call, values);
    return result;
}

static const struct mc_call get_start_call = {
    "batch_get_session_start", "list[int]", {{"keys", MC_KEYS, NULL}}};
static const struct mc_call put_end_call = {
    "batch_put_session_end", "list[int]", {{"keys", MC_KEYS, NULL}}};
static const struct mc_call put_revoke_call = {
    "batch_put_session_revoke", "list[int]", {{"keys", MC_KEYS, NULL}}};
MC_METHOD(mc_get_session_start)
{
    return keys_step(self, &get_start_call, args, count, names, STEP_GET_START);
}
MC_METHOD(mc_put_session_end)
{
    return keys_step(self, &put_end_call, args, count, names, STEP_PUT_END);
}
MC_METHOD(mc_put_session_revoke)
{
    return keys_step(self, &put_revoke_call, args, count, names, STEP_PUT_REVOKE);
}

static const struct mc_call get_end_call = {
    "batch_get_session_end", "int", {{"keys", MC_KEYS, NULL}}};
MC_METHOD(mc_get_session_end)
{
    struct mc_value values[MC_ARGUMENTS_MAX];
    if (!mc_take(self, &get_end_call, args, count, names, values)) {
        return NULL;
    }
    struct mc_keys *keys = &values[0].keys;
    struct sl_store *store = mc_store_of(self);
    PyThreadState *unlocked = PyEval_SaveThread();
    int code = sl_store_get_session_end(store, keys->at, keys->count);
    PyEval_RestoreThread(unlocked);
    mc_release(&get_end_call, values);
    return PyLong_FromLong(code);
}

/* ---- beginning to write ---- */

static const struct mc_call put_start_call = {"batch_put_session_start",
                                              "list[int]",
                                              {{"keys", MC_KEYS, NULL},
                                               {"sizes", MC_NUMBERS, NULL},
                                               {"config", MC_CONFIG, "ReplicateConfig()"}}};
MC_METHOD(mc_put_session_start)
{
    struct mc_value values[MC_ARGUMENTS_MAX];
    if (!mc_take(self, &put_start_call, args, count, names, values)) {
        return NULL;
    }
    struct mc_keys *keys = &values[0].keys;
    const struct mc_numbers *sizes = &values[1].numbers;
    const struct sl_store_terms *terms = values[2].object == NULL ? NULL : &values[2].terms.terms;
    struct sl_store *store = mc_store_of(self);
    PyObject *result = NULL;
    int *codes = PyMem_Malloc(((size_t)keys->count + 1) * sizeof *codes);
    if (codes == NULL) {
        PyErr_NoMemory();
    } else if (!set_up(self)) {
        result = PyList_New(0);
    } else if (sizes->count != keys->count) {
        result = mc_same(SL_STORE_INVALID, keys->count);
    } else {
        struct sl_error why = {.code = SL_OK};
        PyThreadState *unlocked = PyEval_SaveThread();
        sl_store_put_session_start(store, keys->at, sizes->at, keys->count, terms, codes, &why);
        PyEval_RestoreThread(unlocked);
        mc_put_refused(&why);
        result = mc_codes(codes, keys->count);
    }
    PyMem_Free(codes);
    mc_release(&put_start_call, values);
    return result;
}

/* ---- parts ---- */

static PyObject *move_items(PyObject *self, struct sl_pieces *items, uint32_t count, bool writes)
{
    struct sl_store *store = mc_store_of(self);
    int64_t *results = PyMem_Malloc(((size_t)count + 1) * sizeof *results);
    if (results == NULL) {
        return PyErr_NoMemory();
    }
    PyThreadState *unlocked = PyEval_SaveThread();
    if (writes) {
        sl_store_put_session_write(store, items, count, results);
    } else {
        sl_store_get_session_read(store, items, count, results);
    }
    PyEval_RestoreThread(unlocked);
    PyObject *list = mc_results(results, count);
    PyMem_Free(results);
    return list;
}

/* A key whose lists differ in length moves nothing and is told so. */
static void lists_check(const struct mc_lists *addrs, const struct mc_lists *sizes,
                        const struct mc_lists *offsets, PyObject *list)
{
    for (uint32_t i = 0; list != NULL && i < addrs->count; i++) {
        if (addrs->counts[i] != sizes->counts[i] || addrs->counts[i] != offsets->counts[i]) {
            PyObject *code = PyLong_FromLong(SL_STORE_INVALID);
            if (code != NULL) {
                (void)PyList_SetItem(list, (Py_ssize_t)i, code);
            }
        }
    }
}

static PyObject *parts_move(PyObject *self, const struct mc_call *call, PyObject *const *args,
                            Py_ssize_t count, PyObject *names, bool writes)
{
    struct mc_value values[MC_ARGUMENTS_MAX];
    if (!mc_take(self, call, args, count, names, values)) {
        return NULL;
    }
    const struct mc_keys *keys = &values[0].keys;
    const struct mc_lists *addrs = &values[1].lists, *sizes = &values[2].lists,
                          *offsets = &values[3].lists;
    struct mc_items items = {.items = NULL};
    PyObject *result = NULL;
    if (!set_up(self)) {
        result = PyList_New(0);
    } else if (addrs->count != keys->count || sizes->count != keys->count ||
               offsets->count != keys->count) {
        result = mc_same(SL_STORE_INVALID, keys->count);
    } else if (mc_items_make(keys, addrs, sizes, offsets, &items)) {
        result = move_items(self, items.items, keys->count, writes);
        lists_check(addrs, sizes, offsets, result);
    }
    mc_items_release(&items);
    mc_release(call, values);
    return result;
}

static const struct mc_call get_read_call = {"batch_get_into_multi_buffer_ranges",
                                             "list[int]",
                                             {{"keys", MC_KEYS, NULL},
                                              {"all_buffer_ptrs", MC_LISTS, NULL},
                                              {"all_sizes", MC_LISTS, NULL},
                                              {"all_src_offsets", MC_LISTS, NULL}}};
static const struct mc_call put_write_call = {"batch_put_from_multi_buffer_ranges",
                                              "list[int]",
                                              {{"keys", MC_KEYS, NULL},
                                               {"all_buffer_ptrs", MC_LISTS, NULL},
                                               {"all_sizes", MC_LISTS, NULL},
                                               {"all_dst_offsets", MC_LISTS, NULL}}};
MC_METHOD(mc_get_session_read)
{
    return parts_move(self, &get_read_call, args, count, names, false);
}
MC_METHOD(mc_put_session_write)
{
    return parts_move(self, &put_write_call, args, count, names, true);
}
