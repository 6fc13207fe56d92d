/* client/mooncake/python/write.c - putting and upserting. */
#include "client/mooncake/python/internal.h"
#include "runtime/sl_clock.h"

#include <string.h>

#define REFUSED_LINES_MAX 60u /* a minute */
#define CONFIG_ARGUMENT                          \
    {                                            \
        "config", MC_CONFIG, "ReplicateConfig()" \
    }

static const struct sl_store_terms *terms_of(const struct mc_value *value)
{
    return value->object == NULL ? NULL : &value->terms.terms;
}

/* The code alone does not say what is wrong; an engine may ask again and again. */
void mc_put_refused(const struct sl_error *why)
{
    static uint64_t began_ns; /* with the interpreter's lock */
    static uint32_t lines;
    uint64_t now_ns = sl_clock_monotonic_ns();
    if (why->code == SL_OK) {
        return;
    }
    if (now_ns - began_ns > 60 * SL_NS_PER_S) {
        began_ns = now_ns;
        lines = 0;
    }
    if (lines++ < REFUSED_LINES_MAX) {
        PySys_WriteStderr("mooncake.store: a put gives %d: %.240s\n", SL_STORE_INVALID, why->text);
    }
}

static void write_unlocked(PyObject *self, struct sl_pieces *items, uint32_t count,
                           const struct mc_value *config, unsigned kind, int *codes)
{
    struct sl_store *store = mc_store_of(self);
    struct sl_error why = {.code = SL_OK};
    PyThreadState *unlocked = PyEval_SaveThread();
    sl_store_write(store, items, count, terms_of(config), kind, codes, &why);
    PyEval_RestoreThread(unlocked);
    mc_put_refused(&why);
}

static PyObject *write_one(PyObject *self, struct sl_object_key key, const struct sl_piece *pieces,
                           uint32_t count, const struct mc_value *config, unsigned kind)
{
    struct sl_pieces item = {.key = key, .at = pieces, .count = count};
    int code = SL_STORE_INVALID;
    write_unlocked(self, &item, 1, config, kind, &code);
    return PyLong_FromLong(code);
}

/* libsluice only reads what is put. */
static void *borrowed(const void *at)
{
    return (void *)(uintptr_t)at;
}

/* ---- copying ---- */

static PyObject *put_value(PyObject *self, const struct mc_call *call, PyObject *const *args,
                           Py_ssize_t count, PyObject *names, unsigned kind)
{
    struct mc_value values[MC_ARGUMENTS_MAX];
    if (!mc_take(self, call, args, count, names, values)) {
        return NULL;
    }
    const struct sl_piece piece = {.at = borrowed(mc_view_at(&values[1].view)),
                                   .length_bytes = (uint64_t)values[1].view.view.len};
    PyObject *result =
        write_one(self, values[0].key, &piece, 1, &values[2], kind | SL_STORE_COPYING);
    mc_release(call, values);
    return result;
}

static const struct mc_call put_call = {
    "put", "int", {{"key", MC_KEY, NULL}, {"value", MC_VALUE, NULL}, CONFIG_ARGUMENT}};
static const struct mc_call upsert_call = {
    "upsert", "int", {{"key", MC_KEY, NULL}, {"value", MC_VALUE, NULL}, CONFIG_ARGUMENT}};
MC_METHOD(mc_put)
{
    return put_value(self, &put_call, args, count, names, 0);
}
MC_METHOD(mc_upsert)
{
    return put_value(self, &upsert_call, args, count, names, SL_STORE_REPLACING);
}

/* One-dimensional, of bytes, or RuntimeError. */
static bool part_take(PyObject *object, Py_buffer *part)
{
    if (!PyObject_CheckBuffer(object)) {
        PyErr_SetString(PyExc_TypeError, "a part is a buffer");
        return false;
    }
    if (PyObject_GetBuffer(object, part, PyBUF_ND) != 0) {
        if (PyErr_ExceptionMatches(PyExc_BufferError) || PyErr_ExceptionMatches(PyExc_ValueError)) {
            PyErr_Clear();
            PyErr_SetString(PyExc_RuntimeError, "a part is a contiguous buffer");
        }
        return false;
    }
    if (part->ndim != 1 || part->itemsize != 1) {
        PyBuffer_Release(part);
        PyErr_SetString(PyExc_RuntimeError, "a part is a one-dimensional buffer of bytes");
        return false;
    }
    return true;
}

static PyObject *parts_put(PyObject *self, const struct mc_value *values, PyObject *const *parts,
                           Py_ssize_t count, unsigned kind)
{
    Py_buffer *views = PyMem_Calloc((size_t)count + 1, sizeof *views);
    struct sl_piece *pieces = PyMem_Calloc((size_t)count + 1, sizeof *pieces);
    Py_ssize_t held = 0;
    uint64_t total = 0;
    uint32_t used = 0;
    bool fine = mc_made(views) && mc_made(pieces);
    while (fine && held < count) {
        fine = part_take(parts[held], &views[held]);
        held += fine ? 1 : 0;
        if (fine && views[held - 1].len > 0) {
            pieces[used++] = (struct sl_piece){.at = views[held - 1].buf,
                                               .length_bytes = (uint64_t)views[held - 1].len,
                                               .offset_bytes = total};
            total += (uint64_t)views[held - 1].len;
        }
    }
    PyObject *result = NULL;
    if (fine && total == 0 && sl_store_is_set_up(mc_store_of(self))) {
        result = PyLong_FromLong(SL_STORE_OK); /* nothing, and no object */
    } else if (fine) {
        result = write_one(self, values[0].key, pieces, used, &values[1], kind | SL_STORE_COPYING);
    }
    for (Py_ssize_t i = 0; i < held; i++) {
        PyBuffer_Release(&views[i]);
    }
    PyMem_Free(views);
    PyMem_Free(pieces);
    return result;
}

/* key first, then parts; config by name alone. */
static PyObject *put_parts(PyObject *self, const struct mc_call *call, PyObject *const *args,
                           Py_ssize_t count, PyObject *names, unsigned kind)
{
    struct mc_value values[MC_ARGUMENTS_MAX];
    Py_ssize_t named = names == NULL ? 0 : PyTuple_Size(names);
    PyObject *own[3] = {count > 0 ? args[0] : NULL, NULL, NULL};
    if (count < 1 || named > 1) {
        return mc_mismatch(call, names);
    }
    if (named == 1) {
        own[1] = args[count];
    }
    if (!mc_take(self, call, own, 1, named == 1 ? names : NULL, values)) {
        return NULL;
    }
    PyObject *result = parts_put(self, values, args + 1, count - 1, kind);
    mc_release(call, values);
    return result;
}

static const struct mc_call put_parts_call = {
    "put_parts",
    "int (further positional arguments: *parts: collections.abc.Buffer)",
    {{"key", MC_KEY, NULL}, CONFIG_ARGUMENT}};
static const struct mc_call upsert_parts_call = {
    "upsert_parts",
    "int (further positional arguments: *parts: collections.abc.Buffer)",
    {{"key", MC_KEY, NULL}, CONFIG_ARGUMENT}};
MC_METHOD(mc_put_parts)
{
    return put_parts(self, &put_parts_call, args, count, names, 0);
}
MC_METHOD(mc_upsert_parts)
{
    return put_parts(self, &upsert_parts_call, args, count, names, SL_STORE_REPLACING);
}

static int first_failure(const int *codes, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (codes[i] != SL_STORE_OK) {
            return codes[i];
        }
    }
    return SL_STORE_OK;
}

static PyObject *put_batch(PyObject *self, const struct mc_call *call, PyObject *const *args,
                           Py_ssize_t count, PyObject *names, unsigned kind)
{
    struct mc_value values[MC_ARGUMENTS_MAX];
    if (!mc_take(self, call, args, count, names, values)) {
        return NULL;
    }
    const struct mc_keys *keys = &values[0].keys;
    const struct mc_views *views = &values[1].views;
    PyObject *result = NULL;
    struct sl_pieces *items = PyMem_Calloc((size_t)keys->count + 1, sizeof *items);
    struct sl_piece *pieces = PyMem_Calloc((size_t)keys->count + 1, sizeof *pieces);
    int *codes = PyMem_Calloc((size_t)keys->count + 1, sizeof *codes);
    if (keys->count != views->count) {
        result = PyLong_FromLong(SL_STORE_INVALID);
    } else if (items == NULL || pieces == NULL || codes == NULL) {
        PyErr_NoMemory();
    } else {
        for (uint32_t i = 0; i < keys->count; i++) {
            pieces[i] = (struct sl_piece){.at = borrowed(mc_view_at(&views->at[i])),
                                          .length_bytes = (uint64_t)views->at[i].view.len};
            items[i] = (struct sl_pieces){.key = keys->at[i], .at = &pieces[i], .count = 1};
        }
        write_unlocked(self, items, keys->count, &values[2], kind | SL_STORE_COPYING, codes);
        int code = keys->count == 0 && !sl_store_is_set_up(mc_store_of(self))
                       ? SL_STORE_INVALID
                       : first_failure(codes, keys->count);
        result = PyLong_FromLong(code);
    }
    PyMem_Free(items);
    PyMem_Free(pieces);
    PyMem_Free(codes);
    mc_release(call, values);
    return result;
}

static const struct mc_call put_batch_call = {
    "put_batch", "int", {{"keys", MC_KEYS, NULL}, {"values", MC_VALUES, NULL}, CONFIG_ARGUMENT}};
static const struct mc_call upsert_batch_call = {
    "upsert_batch", "int", {{"keys", MC_KEYS, NULL}, {"values", MC_VALUES, NULL}, CONFIG_ARGUMENT}};
MC_METHOD(mc_put_batch)
{
    return put_batch(self, &put_batch_call, args, count, names, 0);
}
MC_METHOD(mc_upsert_batch)
{
    return put_batch(self, &upsert_batch_call, args, count, names, SL_STORE_REPLACING);
}

/* ---- from addresses ---- */

static PyObject *put_from(PyObject *self, const struct mc_call *call, PyObject *const *args,
                          Py_ssize_t count, PyObject *names, unsigned kind)
{
    struct mc_value values[MC_ARGUMENTS_MAX];
    if (!mc_take(self, call, args, count, names, values)) {
        return NULL;
    }
    const struct sl_piece piece = {.at = mc_address(values[1].number),
                                   .length_bytes = values[2].number};
    PyObject *result = piece.length_bytes == 0 && sl_store_is_set_up(mc_store_of(self))
                           ? PyLong_FromLong(SL_STORE_OK) /* nothing, and no object */
                           : write_one(self, values[0].key, &piece, 1, &values[3], kind);
    mc_release(call, values);
    return result;
}

#define FROM_ARGUMENTS                                                                     \
    {                                                                                      \
        {"key", MC_KEY, NULL}, {"buffer_ptr", MC_NUMBER, NULL}, {"size", MC_NUMBER, NULL}, \
            CONFIG_ARGUMENT                                                                \
    }
static const struct mc_call put_from_call = {"put_from", "int", FROM_ARGUMENTS};
static const struct mc_call upsert_from_call = {"upsert_from", "int", FROM_ARGUMENTS};
MC_METHOD(mc_put_from)
{
    return put_from(self, &put_from_call, args, count, names, 0);
}
MC_METHOD(mc_upsert_from)
{
    return put_from(self, &upsert_from_call, args, count, names, SL_STORE_REPLACING);
}

static const struct mc_call with_metadata_call = {"put_from_with_metadata",
                                                  "int",
                                                  {{"key", MC_KEY, NULL},
                                                   {"buffer_ptr", MC_NUMBER, NULL},
                                                   {"metadata_buffer_ptr", MC_NUMBER, NULL},
                                                   {"size", MC_NUMBER, NULL},
                                                   {"metadata_size", MC_NUMBER, NULL},
                                                   CONFIG_ARGUMENT}};
MC_METHOD(mc_put_from_with_metadata)
{
    struct mc_value values[MC_ARGUMENTS_MAX];
    if (!mc_take(self, &with_metadata_call, args, count, names, values)) {
        return NULL;
    }
    uint64_t data_bytes = values[3].number, metadata_bytes = values[4].number;
    struct sl_piece pieces[2];
    uint32_t used = 0;
    if (metadata_bytes > 0) {
        pieces[used++] =
            (struct sl_piece){.at = mc_address(values[2].number), .length_bytes = metadata_bytes};
    }
    if (data_bytes > 0) {
        pieces[used++] = (struct sl_piece){.at = mc_address(values[1].number),
                                           .length_bytes = data_bytes,
                                           .offset_bytes = metadata_bytes};
    }
    PyObject *result = used == 0 && sl_store_is_set_up(mc_store_of(self))
                           ? PyLong_FromLong(SL_STORE_OK)
                           : write_one(self, values[0].key, pieces, used, &values[5], 0);
    mc_release(&with_metadata_call, values);
    return result;
}

/* ---- batches from addresses ---- */

void mc_items_release(struct mc_items *items)
{
    PyMem_Free(items->items);
    PyMem_Free(items->pieces);
    *items = (struct mc_items){.items = NULL};
}

static bool items_room(struct mc_items *out, size_t item_count, size_t piece_count)
{
    out->items = PyMem_Calloc(item_count + 1, sizeof *out->items);
    out->pieces = PyMem_Malloc((piece_count + 1) * sizeof *out->pieces);
    if (out->items == NULL || out->pieces == NULL) {
        mc_items_release(out);
        PyErr_NoMemory();
        return false;
    }
    return true;
}

bool mc_items_single(const struct mc_keys *keys, const struct mc_numbers *addrs,
                     const struct mc_numbers *sizes, struct mc_items *out)
{
    if (!items_room(out, keys->count, keys->count)) {
        return false;
    }
    for (uint32_t i = 0; i < keys->count; i++) {
        out->pieces[i] =
            (struct sl_piece){.at = mc_address(addrs->at[i]), .length_bytes = sizes->at[i]};
        out->items[i] = (struct sl_pieces){.key = keys->at[i], .at = &out->pieces[i], .count = 1};
    }
    return true;
}

/* The item's pieces; empty ones are left out. Gives how many. */
static uint32_t pieces_make(const uint64_t *addrs, const uint64_t *sizes, const uint64_t *offsets,
                            uint32_t count, struct sl_piece *to)
{
    uint64_t at = 0;
    uint32_t used = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (sizes[i] != 0) {
            to[used++] = (struct sl_piece){.at = mc_address(addrs[i]),
                                           .length_bytes = sizes[i],
                                           .offset_bytes = offsets == NULL ? at : offsets[i]};
        }
        at += sizes[i];
    }
    return used;
}

bool mc_items_make(const struct mc_keys *keys, const struct mc_lists *addrs,
                   const struct mc_lists *sizes, const struct mc_lists *offsets,
                   struct mc_items *out)
{
    if (!items_room(out, keys->count, addrs->total)) {
        return false;
    }
    size_t addr_at = 0, size_at = 0, offset_at = 0;
    struct sl_piece *to = out->pieces;
    for (uint32_t i = 0; i < keys->count; i++) {
        uint32_t count = addrs->counts[i];
        bool fine = sizes->counts[i] == count && (offsets == NULL || offsets->counts[i] == count);
        out->items[i] = (struct sl_pieces){.key = keys->at[i], .at = to};
        if (fine) {
            out->items[i].count =
                pieces_make(addrs->at + addr_at, sizes->at + size_at,
                            offsets == NULL ? NULL : offsets->at + offset_at, count, to);
            to += out->items[i].count;
        }
        addr_at += count;
        size_at += sizes->counts[i];
        offset_at += offsets == NULL ? 0 : offsets->counts[i];
    }
    return true;
}

static PyObject *write_items(PyObject *self, struct sl_pieces *items, uint32_t count,
                             const struct mc_value *config, unsigned kind)
{
    PyObject *result = NULL;
    int *codes = PyMem_Malloc(((size_t)count + 1) * sizeof *codes);
    if (codes == NULL) {
        return PyErr_NoMemory();
    }
    write_unlocked(self, items, count, config, kind, codes);
    result = mc_codes(codes, count);
    PyMem_Free(codes);
    return result;
}

static PyObject *batch_from(PyObject *self, const struct mc_call *call, PyObject *const *args,
                            Py_ssize_t count, PyObject *names, unsigned kind)
{
    struct mc_value values[MC_ARGUMENTS_MAX];
    if (!mc_take(self, call, args, count, names, values)) {
        return NULL;
    }
    const struct mc_keys *keys = &values[0].keys;
    const struct mc_numbers *addrs = &values[1].numbers, *sizes = &values[2].numbers;
    PyObject *result = NULL;
    struct mc_items items = {.items = NULL};
    if (addrs->count != keys->count || sizes->count != keys->count) {
        result = mc_same(SL_STORE_INVALID, keys->count);
    } else if (mc_items_single(keys, addrs, sizes, &items)) {
        result = write_items(self, items.items, keys->count, &values[3], kind);
    }
    mc_items_release(&items);
    mc_release(call, values);
    return result;
}

#define BATCH_FROM_ARGUMENTS                                                                     \
    {                                                                                            \
        {"keys", MC_KEYS, NULL}, {"buffer_ptrs", MC_NUMBERS, NULL}, {"sizes", MC_NUMBERS, NULL}, \
            CONFIG_ARGUMENT                                                                      \
    }
static const struct mc_call batch_put_from_call = {"batch_put_from", "list[int]",
                                                   BATCH_FROM_ARGUMENTS};
static const struct mc_call batch_upsert_from_call = {"batch_upsert_from", "list[int]",
                                                      BATCH_FROM_ARGUMENTS};
MC_METHOD(mc_batch_put_from)
{
    return batch_from(self, &batch_put_from_call, args, count, names, 0);
}
MC_METHOD(mc_batch_upsert_from)
{
    return batch_from(self, &batch_upsert_from_call, args, count, names, SL_STORE_REPLACING);
}

static const struct mc_call multi_call = {"batch_put_from_multi_buffers",
                                          "list[int]",
                                          {{"keys", MC_KEYS, NULL},
                                           {"all_buffer_ptrs", MC_LISTS, NULL},
                                           {"all_sizes", MC_LISTS, NULL},
                                           CONFIG_ARGUMENT}};
MC_METHOD(mc_batch_put_from_multi_buffers)
{
    struct mc_value values[MC_ARGUMENTS_MAX];
    if (!mc_take(self, &multi_call, args, count, names, values)) {
        return NULL;
    }
    const struct mc_keys *keys = &values[0].keys;
    const struct mc_lists *addrs = &values[1].lists, *sizes = &values[2].lists;
    struct mc_items items = {.items = NULL};
    PyObject *result = NULL;
    if (!sl_store_is_set_up(mc_store_of(self))) {
        result = PyList_New(0);
    } else if (addrs->count != keys->count || sizes->count != keys->count) {
        result = mc_same(SL_STORE_INVALID, keys->count);
    } else if (mc_items_make(keys, addrs, sizes, NULL, &items)) {
        result = write_items(self, items.items, keys->count, &values[3], SL_STORE_SAME_NODE);
    }
    mc_items_release(&items);
    mc_release(&multi_call, values);
    return result;
}
