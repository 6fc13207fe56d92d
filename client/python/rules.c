/* client/python/rules.c - the rules of configurations, which are libsluice's: modes and sizes, who
 * makes pools, what has to be mapped; and contributions of memory. */
#include "client/python/internal.h"

#include <stdlib.h>

PyObject *sl_py_store_config(PyObject *module, PyObject *args, PyObject *names)
{
    static char *words[] = {"mode", "global_segment_size", "local_buffer_size", "enable_offload",
                            NULL};
    struct sl_store_settings settings = {.connector = true};
    struct sl_store_config config;
    struct sl_error why = {.code = SL_OK};
    if (!PyArg_ParseTupleAndKeywords(args, names, "|zzzz:store_config", words, &settings.mode,
                                     &settings.global_segment_size, &settings.local_buffer_size,
                                     &settings.enable_offload)) {
        return NULL;
    }
    sl_err err = sl_store_config_parse(&settings, &config, &why);
    if (err != SL_OK) {
        return sl_py_raise(PyModule_GetState(module), err, &why);
    }
    return Py_BuildValue("{s:s,s:K,s:K,s:O}", "mode",
                         config.mode == SL_STORE_EMBEDDED ? "embedded" : "standalone-store",
                         "global_segment_size", (unsigned long long)config.global_segment_bytes,
                         "local_buffer_size", (unsigned long long)config.local_buffer_bytes,
                         "enable_offload", config.enable_offload ? Py_True : Py_False);
}

PyObject *sl_py_pool_creator(PyObject *module, PyObject *args, PyObject *names)
{
    static char *words[] = {"profiling", "host_blocks", "storage", "split", NULL};
    int profiling = 0, storage = 0, split = 0;
    uint64_t host_blocks = 0;
    (void)module;
    if (!PyArg_ParseTupleAndKeywords(args, names, "|$pO&pp:pool_creator", words, &profiling,
                                     sl_py_u64_into, &host_blocks, &storage, &split)) {
        return NULL;
    }
    const struct sl_pool_situation situation = {.profiling = profiling != 0,
                                                .host_blocks = host_blocks,
                                                .storage = storage != 0,
                                                .split = split != 0};
    return sl_glue_text(sl_pool_owner_decide(&situation) == SL_POOL_BY_ENGINE ? "engine"
                                                                              : "sluice");
}

PyObject *sl_py_required_bytes(PyObject *module, PyObject *buffers)
{
    PyObject *list = PySequence_List(buffers);
    if (list == NULL) {
        return NULL;
    }
    Py_ssize_t count = PyList_Size(list);
    struct sl_pool_buffer *spans = calloc((size_t)count + 1, sizeof *spans);
    if (spans == NULL) {
        Py_DECREF(list);
        return PyErr_NoMemory();
    }
    bool fine = true;
    for (Py_ssize_t i = 0; fine && i < count; i++) {
        uint64_t start = 0, length = 0;
        PyObject *pair = PyList_GetItem(list, i);
        fine = PyTuple_Check(pair) && PyArg_ParseTuple(pair, "O&O&:required_bytes", sl_py_u64_into,
                                                       &start, sl_py_u64_into, &length);
        if (fine) {
            spans[i] = (struct sl_pool_buffer){.start_addr = start, .length_bytes = length};
        } else if (PyErr_Occurred() == NULL) {
            PyErr_SetString(PyExc_TypeError, "pairs of an address and a length are needed");
        }
    }
    uint64_t bytes = 0;
    struct sl_error why = {.code = SL_OK};
    sl_err err = fine ? sl_pool_required_bytes(spans,
                                               count > SL_POOL_BUFFERS_MAX ? SL_POOL_BUFFERS_MAX + 1
                                                                           : (uint32_t)count,
                                               &bytes, &why)
                      : SL_OK;
    free(spans);
    Py_DECREF(list);
    if (!fine) {
        return NULL;
    }
    return err == SL_OK ? PyLong_FromUnsignedLongLong(bytes)
                        : sl_py_raise(PyModule_GetState(module), err, &why);
}

/* contribute, and with length_bytes 0 withdraw */
static PyObject *contribution_call(PyObject *object, const char *name, uint64_t length_bytes,
                                   PyObject *timeout)
{
    struct py_client *self = (struct py_client *)object;
    struct sl_error why = {.code = SL_OK};
    uint64_t timeout_ns;
    if (!sl_py_timeout(timeout, &timeout_ns) || !sl_py_enter(self)) {
        return NULL;
    }
    PyThreadState *unlocked = PyEval_SaveThread();
    sl_err err = length_bytes > 0
                     ? sl_contribute(self->client, name, length_bytes, false, timeout_ns, &why)
                     : sl_withdraw(self->client, name, timeout_ns, &why);
    PyEval_RestoreThread(unlocked);
    sl_py_leave(self);
    return err == SL_OK ? Py_NewRef(Py_None) : sl_py_raise(sl_py_state(object), err, &why);
}

PyObject *sl_py_contribute(PyObject *self, PyObject *args, PyObject *names)
{
    static char *words[] = {"name", "length", "timeout", NULL};
    PyObject *timeout = NULL;
    const char *name;
    uint64_t length;
    if (!PyArg_ParseTupleAndKeywords(args, names, "sO&|$O:contribute", words, &name, sl_py_u64_into,
                                     &length, &timeout)) {
        return NULL;
    }
    if (length == 0) {
        return sl_py_raise_text(sl_py_state(self), SL_ERR_INVALID, "contribute: length is 0");
    }
    return contribution_call(self, name, length, timeout);
}

PyObject *sl_py_withdraw(PyObject *self, PyObject *args, PyObject *names)
{
    static char *words[] = {"name", "timeout", NULL};
    PyObject *timeout = NULL;
    const char *name;
    return PyArg_ParseTupleAndKeywords(args, names, "s|$O:withdraw", words, &name, &timeout)
               ? contribution_call(self, name, 0, timeout)
               : NULL;
}
