/* client/python/convert.c - Python's values as libsluice's, and back. */
#include "client/python/internal.h"

#include <stdio.h>
#include <string.h>

#define NS_PER_S      1e9
#define TIMEOUT_S_MAX 1e9 /* 30 years: longer is as long */

bool sl_py_seconds(PyObject *seconds, uint64_t *ns)
{
    *ns = 0;
    if (seconds == NULL || seconds == Py_None) {
        return true;
    }
    double value = PyFloat_AsDouble(seconds);
    if (value == -1.0 && PyErr_Occurred() != NULL) {
        return false;
    }
    if (!(value >= 0)) { /* no number either */
        PyErr_SetString(PyExc_ValueError, "a time is in seconds, 0 or more");
        return false;
    }
    value = value > TIMEOUT_S_MAX ? TIMEOUT_S_MAX : value;
    *ns = (uint64_t)(value * NS_PER_S);
    *ns = *ns == 0 && value > 0 ? 1 : *ns;
    return true;
}

bool sl_py_timeout(PyObject *seconds, uint64_t *ns)
{
    bool fine = sl_py_seconds(seconds, ns);
    *ns = *ns == 0 && seconds != NULL && seconds != Py_None ? 1 : *ns;
    return fine;
}

/* libsluice takes any bytes without NUL; a key that is no text could never be listed or named in a
 * log. */
static bool key_of_bytes(PyObject *object, const char **at, Py_ssize_t *length)
{
    char *bytes = NULL;
    if (PyBytes_AsStringAndSize(object, &bytes, length) != 0) {
        return false;
    }
    *at = bytes;
    for (Py_ssize_t i = 0; i < *length; i++) {
        if ((unsigned char)bytes[i] >= 0x80) { /* seldom: a real check */
            PyObject *text = PyUnicode_DecodeUTF8(bytes, *length, NULL);
            Py_XDECREF(text);
            return text != NULL;
        }
    }
    return true;
}

bool sl_py_key(struct py_state *state, PyObject *object, struct sl_object_key *key)
{
    Py_ssize_t length = 0;
    const char *at = NULL;
    if (PyUnicode_Check(object)) {
        at = PyUnicode_AsUTF8AndSize(object, &length);
        if (at == NULL) {
            return false;
        }
    } else if (PyBytes_Check(object)) {
        if (!key_of_bytes(object, &at, &length)) {
            return false;
        }
    } else {
        PyErr_SetString(PyExc_TypeError, "a key is str, or bytes in UTF-8");
        return false;
    }
    if (length < 1 || length > SL_PY_KEY_BYTES_MAX || memchr(at, '\0', (size_t)length) != NULL) {
        sl_py_raise_text(state, SL_ERR_INVALID, "a key has 1 to 1024 bytes in UTF-8 and no NUL");
        return false;
    }
    *key = (struct sl_object_key){.at = at, .length = (uint32_t)length};
    return true;
}

PyObject *sl_py_items(struct py_state *state, PyObject *sequence, Py_ssize_t count_max,
                      const char *what)
{
    if (!PySequence_Check(sequence) || PyUnicode_Check(sequence) || PyBytes_Check(sequence)) {
        PyErr_Format(PyExc_TypeError, "%s: a sequence is needed", what);
        return NULL;
    }
    Py_ssize_t count = PySequence_Size(sequence);
    if (count < 0) {
        return NULL;
    }
    PyObject *items = count > count_max ? NULL : PySequence_Tuple(sequence);
    if (count > count_max ||
        (items != NULL && PyTuple_Size(items) > count_max)) { /* it may have grown */
        char text[96];
        (void)snprintf(text, sizeof text, "%s: at most %zd, not %zd", what, count_max, count);
        Py_XDECREF(items);
        return sl_py_raise_text(state, SL_ERR_INVALID, text);
    }
    return items;
}

bool sl_py_u32(PyObject *number, uint32_t *out)
{
    uint64_t value = 0;
    if (!sl_glue_u64(number, &value)) {
        return false;
    }
    if (value > UINT32_MAX) {
        PyErr_SetString(PyExc_OverflowError, "a number of 32 bits is needed");
        return false;
    }
    *out = (uint32_t)value;
    return true;
}

int sl_py_u64_into(PyObject *number, void *out)
{
    return sl_glue_u64(number, out) ? 1 : 0;
}

int sl_py_u32_into(PyObject *number, void *out)
{
    return sl_py_u32(number, out) ? 1 : 0;
}

PyObject *sl_py_struct(PyTypeObject *type, PyObject *const *fields, Py_ssize_t count)
{
    PyObject *result = PyStructSequence_New(type);
    bool fine = result != NULL;
    for (Py_ssize_t i = 0; i < count; i++) {
        fine = fine && fields[i] != NULL;
        if (result != NULL && fields[i] != NULL) {
            PyStructSequence_SetItem(result, i, fields[i]);
        } else {
            Py_XDECREF(fields[i]);
        }
    }
    if (!fine) {
        Py_CLEAR(result);
    }
    return result;
}

PyObject *sl_py_codes(const sl_err *codes, Py_ssize_t count)
{
    PyObject *list = PyList_New(count);
    for (Py_ssize_t i = 0; list != NULL && i < count; i++) {
        sl_glue_list_put(&list, i, PyLong_FromLong(codes[i]));
    }
    return list;
}

/* ---- keys ---- */

bool sl_py_keys_take(struct py_state *state, PyObject *sequence, struct py_keys *out)
{
    *out = (struct py_keys){.items = sl_py_items(state, sequence, SL_PY_BATCH_MAX, "keys")};
    if (out->items == NULL) {
        return false;
    }
    out->count = (uint32_t)PyTuple_Size(out->items);
    out->keys = PyMem_Calloc((size_t)out->count + 1, sizeof *out->keys);
    out->codes = PyMem_Calloc((size_t)out->count + 1, sizeof *out->codes);
    if (out->keys == NULL || out->codes == NULL) {
        PyErr_NoMemory();
        return false;
    }
    for (uint32_t i = 0; i < out->count; i++) {
        if (!sl_py_key(state, PyTuple_GetItem(out->items, (Py_ssize_t)i), &out->keys[i])) {
            return false;
        }
    }
    return true;
}

void sl_py_keys_release(struct py_keys *keys)
{
    PyMem_Free(keys->keys);
    PyMem_Free(keys->codes);
    Py_CLEAR(keys->items);
}

/* ---- tokens and blocks ---- */

static bool is_u32s(const Py_buffer *view)
{
    static const char *const formats[] = {"I", "=I", "<I", "@I", "L", "=L", "<L"};
    if (view->itemsize != sizeof(uint32_t) || view->format == NULL || view->ndim != 1 ||
        (uintptr_t)view->buf % _Alignof(uint32_t) != 0) {
        return false;
    }
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        if (strcmp(view->format, formats[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* true: it is one, and used in place. */
static bool u32s_view(PyObject *object, struct py_u32s *out)
{
    if (!PyObject_CheckBuffer(object)) {
        return false;
    }
    if (PyObject_GetBuffer(object, &out->view, PyBUF_ND | PyBUF_FORMAT) != 0) {
        PyErr_Clear(); /* not contiguous: item by item */
        return false;
    }
    if (!is_u32s(&out->view)) {
        PyBuffer_Release(&out->view);
        return false;
    }
    out->viewed = true;
    out->at = out->view.buf;
    return true;
}

bool sl_py_u32s_take(struct py_state *state, PyObject *object, Py_ssize_t count_max,
                     const char *what, struct py_u32s *out)
{
    *out = (struct py_u32s){.viewed = false};
    if (u32s_view(object, out)) {
        Py_ssize_t count = out->view.len / (Py_ssize_t)sizeof(uint32_t);
        if (count > count_max) {
            char text[96];
            (void)snprintf(text, sizeof text, "%s: at most %zd, not %zd", what, count_max, count);
            sl_py_raise_text(state, SL_ERR_INVALID, text);
            return false;
        }
        out->count = (uint32_t)count;
        return true;
    }
    PyObject *items = sl_py_items(state, object, count_max, what);
    if (items == NULL) {
        return false;
    }
    out->count = (uint32_t)PyTuple_Size(items);
    out->copied = PyMem_Calloc((size_t)out->count + 1, sizeof *out->copied);
    out->at = out->copied;
    bool fine = out->copied != NULL;
    if (!fine) {
        PyErr_NoMemory();
    }
    for (uint32_t i = 0; fine && i < out->count; i++) {
        fine = sl_py_u32(PyTuple_GetItem(items, (Py_ssize_t)i), &out->copied[i]);
    }
    Py_DECREF(items);
    return fine;
}

void sl_py_u32s_release(struct py_u32s *numbers)
{
    if (numbers->viewed) {
        PyBuffer_Release(&numbers->view);
        numbers->viewed = false;
    }
    PyMem_Free(numbers->copied);
    numbers->copied = NULL;
}
