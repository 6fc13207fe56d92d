/* client/python/hashes.c - the engine's own keys and its tables of blocks, from Python objects. */
#include "client/python/internal.h"

#include <string.h>

/* One run of bytes, hash_bytes each. */
static bool hashes_view(struct py_state *state, PyObject *object, uint32_t hash_bytes,
                        struct py_hashes *out)
{
    if (PyObject_GetBuffer(object, &out->view, PyBUF_SIMPLE) != 0) {
        return false;
    }
    out->viewed = true;
    uint64_t length = (uint64_t)out->view.len;
    if (hash_bytes == 0 || hash_bytes > SL_HASH_BYTES_MAX || length % hash_bytes != 0 ||
        length / hash_bytes > SL_PY_BATCH_MAX) {
        sl_py_raise_text(state, SL_ERR_INVALID,
                         "hashes: bytes need hash_bytes of 1 to 64, which divides their length");
        return false;
    }
    out->at = out->view.buf;
    out->hash_bytes = hash_bytes;
    out->count = (uint32_t)(length / hash_bytes);
    return true;
}

static bool hash_copy(struct py_state *state, PyObject *object, uint32_t number,
                      struct py_hashes *out)
{
    char *bytes = NULL;
    Py_ssize_t length = 0;
    if (PyBytes_AsStringAndSize(object, &bytes, &length) != 0) {
        return false;
    }
    if (number == 0 && length >= 1 && length <= SL_HASH_BYTES_MAX) {
        out->hash_bytes = (uint32_t)length;
        out->copied = PyMem_Malloc((size_t)length * out->count);
        if (out->copied == NULL) {
            return PyErr_NoMemory() != NULL;
        }
    }
    if (out->copied == NULL || (uint32_t)length != out->hash_bytes) {
        sl_py_raise_text(state, SL_ERR_INVALID,
                         "hashes: each has 1 to 64 bytes, all of them alike");
        return false;
    }
    memcpy(out->copied + (size_t)number * out->hash_bytes, bytes, (size_t)length);
    return true;
}

bool sl_py_hashes_take(struct py_state *state, PyObject *object, PyObject *hash_bytes,
                       struct py_hashes *out)
{
    uint32_t each = 0;
    *out = (struct py_hashes){.viewed = false};
    if (hash_bytes != NULL && !sl_py_u32(hash_bytes, &each)) {
        return false;
    }
    if (PyObject_CheckBuffer(object)) {
        return hashes_view(state, object, each, out);
    }
    PyObject *items = sl_py_items(state, object, SL_PY_BATCH_MAX, "hashes");
    if (items == NULL) {
        return false;
    }
    bool fine = true;
    out->count = (uint32_t)PyTuple_Size(items);
    for (uint32_t i = 0; fine && i < out->count; i++) {
        fine = hash_copy(state, PyTuple_GetItem(items, (Py_ssize_t)i), i, out);
    }
    if (fine && each != 0 && out->count > 0 && each != out->hash_bytes) {
        sl_py_raise_text(state, SL_ERR_INVALID, "hashes: they have another length than hash_bytes");
        fine = false;
    }
    out->at = out->copied;
    Py_DECREF(items);
    return fine;
}

void sl_py_hashes_release(struct py_hashes *hashes)
{
    if (hashes->viewed) {
        PyBuffer_Release(&hashes->view);
    }
    PyMem_Free(hashes->copied);
    *hashes = (struct py_hashes){.viewed = false};
}

/* ---- tables of blocks ---- */

/* Whether it is a sequence of tables, one a pool, and no table. */
static int tables_are(PyObject *object)
{
    if (PyObject_CheckBuffer(object) || PySequence_Size(object) < 1) {
        PyErr_Clear();
        return 0;
    }
    PyObject *first = PySequence_GetItem(object, 0);
    if (first == NULL) {
        return -1;
    }
    int are = PyObject_CheckBuffer(first) || !PyIndex_Check(first);
    Py_DECREF(first);
    return are;
}

bool sl_py_tables_take(struct py_state *state, PyObject *object, struct py_tables *out)
{
    *out = (struct py_tables){.count = 0};
    int are = tables_are(object);
    if (are <= 0) {
        out->count = 1;
        return are == 0 && sl_py_u32s_take(state, object, SL_PY_BATCH_MAX, "blocks", &out->each[0]);
    }
    PyObject *items = sl_py_items(state, object, SL_PY_POOLS_MAX, "tables of blocks");
    bool fine = items != NULL;
    uint32_t count = fine ? (uint32_t)PyTuple_Size(items) : 0;
    for (uint32_t i = 0; fine && i < count; i++) {
        fine = sl_py_u32s_take(state, PyTuple_GetItem(items, (Py_ssize_t)i), SL_PY_BATCH_MAX,
                               "blocks", &out->each[i]);
        out->count = i + 1;
        out->at[i] = out->each[i].at;
        if (fine && out->each[i].count != out->each[0].count) {
            sl_py_raise_text(state, SL_ERR_INVALID, "blocks: tables of one op are equally long");
            fine = false;
        }
    }
    out->pools = fine;
    Py_XDECREF(items);
    return fine;
}

void sl_py_tables_release(struct py_tables *tables)
{
    for (uint32_t i = 0; i < tables->count; i++) {
        sl_py_u32s_release(&tables->each[i]);
    }
    tables->count = 0;
}

PyObject *sl_py_team_number(PyObject *module, PyObject *name)
{
    Py_buffer view;
    Py_ssize_t length = 0;
    (void)module;
    if (PyUnicode_Check(name)) {
        const char *text = PyUnicode_AsUTF8AndSize(name, &length);
        return text == NULL ? NULL
                            : PyLong_FromUnsignedLongLong(sl_team_number(text, (uint64_t)length));
    }
    if (PyObject_GetBuffer(name, &view, PyBUF_SIMPLE) != 0) {
        return NULL;
    }
    PyObject *number = PyLong_FromUnsignedLongLong(sl_team_number(view.buf, (uint64_t)view.len));
    PyBuffer_Release(&view);
    return number;
}
