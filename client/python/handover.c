/* client/python/handover.c - what prefill and decode say to each other through a client. */
#include "client/python/internal.h"

#include <string.h>

#define HANDOVERS_MAX 1024

bool sl_py_plain_take(PyObject *object, void *out, size_t bytes, const char *what)
{
    Py_buffer view;
    if (PyObject_GetBuffer(object, &view, PyBUF_SIMPLE) != 0) {
        return false;
    }
    bool fine = view.len == (Py_ssize_t)bytes;
    if (fine) {
        memcpy(out, view.buf, bytes);
    } else {
        PyErr_Format(PyExc_ValueError, "a %s has %zu bytes, not %zd", what, bytes, view.len);
    }
    PyBuffer_Release(&view);
    return fine;
}

/* Both batches of the client: items, a code for each. */
static bool handovers_arguments(PyObject *object, PyObject *args, PyObject *names,
                                const char *format, char **keywords, uint64_t *timeout_ns,
                                PyObject **items)
{
    PyObject *sequence, *timeout = NULL;
    *items = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, names, format, keywords, &sequence, &timeout) ||
        !sl_py_timeout(timeout, timeout_ns)) {
        return false;
    }
    *items = sl_py_items(sl_py_state(object), sequence, HANDOVERS_MAX, "hand-overs");
    return *items != NULL;
}

PyObject *sl_py_handover_arrived(PyObject *object, PyObject *args, PyObject *names)
{
    static char *keywords[] = {"receipts", "timeout", NULL};
    struct py_client *self = (struct py_client *)object;
    PyObject *items, *result = NULL;
    uint64_t timeout_ns;
    if (!handovers_arguments(object, args, names, "O|$O:handover_arrived", keywords, &timeout_ns,
                             &items)) {
        return NULL;
    }
    uint32_t count = (uint32_t)PyTuple_Size(items);
    struct sl_receipt *receipts = PyMem_Calloc((size_t)count + 1, sizeof *receipts);
    bool fine = receipts != NULL;
    if (!fine) {
        PyErr_NoMemory();
    }
    for (uint32_t i = 0; fine && i < count; i++) {
        fine = sl_py_plain_take(PyTuple_GetItem(items, (Py_ssize_t)i), &receipts[i],
                                sizeof *receipts, "receipt");
    }
    if (fine && sl_py_enter(self)) {
        sl_err codes[HANDOVERS_MAX] = {SL_OK};
        struct sl_error why = {.code = SL_OK};
        sl_err err;
        PyThreadState *unlocked = PyEval_SaveThread();
        err = sl_handover_arrived(self->client, receipts, count, codes, timeout_ns, &why);
        PyEval_RestoreThread(unlocked);
        sl_py_leave(self);
        result = err == SL_OK ? sl_py_codes(codes, (Py_ssize_t)count)
                              : sl_py_raise(sl_py_state(object), err, &why);
    }
    PyMem_Free(receipts);
    Py_DECREF(items);
    return result;
}

PyObject *sl_py_handover_end(PyObject *object, PyObject *args, PyObject *names)
{
    static char *keywords[] = {"ids", "timeout", NULL};
    struct py_client *self = (struct py_client *)object;
    PyObject *items, *result = NULL;
    uint64_t timeout_ns, ids[HANDOVERS_MAX];
    if (!handovers_arguments(object, args, names, "O|$O:handover_end", keywords, &timeout_ns,
                             &items)) {
        return NULL;
    }
    uint32_t count = (uint32_t)PyTuple_Size(items);
    bool fine = true;
    for (uint32_t i = 0; fine && i < count; i++) {
        fine = sl_glue_u64(PyTuple_GetItem(items, (Py_ssize_t)i), &ids[i]);
    }
    if (fine && sl_py_enter(self)) {
        sl_err codes[HANDOVERS_MAX] = {SL_OK};
        struct sl_error why = {.code = SL_OK};
        sl_err err;
        PyThreadState *unlocked = PyEval_SaveThread();
        err = sl_handover_end(self->client, ids, count, codes, timeout_ns, &why);
        PyEval_RestoreThread(unlocked);
        sl_py_leave(self);
        result = err == SL_OK ? sl_py_codes(codes, (Py_ssize_t)count)
                              : sl_py_raise(sl_py_state(object), err, &why);
    }
    Py_DECREF(items);
    return result;
}

PyObject *sl_py_handover_mode(PyObject *module, PyObject *none)
{
    enum sl_handover_mode mode = SL_HANDOVER_DIRECT;
    struct sl_error why = {.code = SL_OK};
    (void)none;
    sl_err err = sl_handover_mode_get(&mode, &why);
    return err == SL_OK ? PyLong_FromLong(mode) : sl_py_raise(PyModule_GetState(module), err, &why);
}
