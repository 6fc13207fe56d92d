/* client/python/layers.c - ops by layers: of one's own, and of another process of the engine. */
#include "client/python/internal.h"

#define OPS_MAX 4096

/* ---- methods of the op ---- */

PyObject *sl_py_op_layer_ready(PyObject *object, PyObject *layer)
{
    struct py_op *self = (struct py_op *)object;
    uint32_t number = 0;
    if (!sl_py_u32(layer, &number) || !sl_py_enter(self)) {
        return NULL;
    }
    struct sl_error why = {.code = SL_OK};
    sl_err err;
    PyThreadState *unlocked = PyEval_SaveThread();
    err = sl_op_layer_ready(self->op, number, &why);
    PyEval_RestoreThread(unlocked);
    sl_py_leave(self);
    return err == SL_OK ? Py_NewRef(Py_None) : sl_py_raise(sl_py_state(object), err, &why);
}

PyObject *sl_py_op_layers_ready(PyObject *object, PyObject *layers)
{
    struct py_op *self = (struct py_op *)object;
    uint32_t count = 0;
    if (!sl_py_u32(layers, &count) || !sl_py_enter(self)) {
        return NULL;
    }
    struct sl_error why = {.code = SL_OK};
    sl_err err;
    PyThreadState *unlocked = PyEval_SaveThread();
    err = sl_op_layers_ready(self->op, count, &why);
    PyEval_RestoreThread(unlocked);
    sl_py_leave(self);
    return err == SL_OK ? Py_NewRef(Py_None) : sl_py_raise(sl_py_state(object), err, &why);
}

PyObject *sl_py_op_number(PyObject *object, void *none)
{
    struct py_op *self = (struct py_op *)object;
    (void)none;
    if (!sl_py_enter(self)) {
        return NULL;
    }
    uint64_t number;
    PyThreadState *unlocked = PyEval_SaveThread();
    number = sl_op_number(self->op);
    PyEval_RestoreThread(unlocked);
    sl_py_leave(self);
    return PyLong_FromUnsignedLongLong(number);
}

PyObject *sl_py_op_layer_wait(PyObject *object, PyObject *args, PyObject *names)
{
    static char *keywords[] = {"layer", "timeout", NULL};
    struct py_op *self = (struct py_op *)object;
    PyObject *layer, *timeout = NULL;
    uint64_t timeout_ns;
    uint32_t number = 0, block_count = 0;
    if (!PyArg_ParseTupleAndKeywords(args, names, "O|O:layer_wait", keywords, &layer, &timeout) ||
        !sl_py_u32(layer, &number) || !sl_py_timeout(timeout, &timeout_ns) || !sl_py_enter(self)) {
        return NULL;
    }
    struct sl_error why = {.code = SL_OK};
    sl_err err;
    PyThreadState *unlocked = PyEval_SaveThread();
    err = sl_op_layer_wait(self->op, number, timeout_ns, &block_count, &why);
    PyEval_RestoreThread(unlocked);
    sl_py_leave(self);
    return err == SL_OK ? PyLong_FromUnsignedLong(block_count)
                        : sl_py_raise(sl_py_state(object), err, &why);
}

/* ---- methods of the engine ---- */

/* One number, or a sequence of them: as a tuple. */
static PyObject *numbers_of(struct py_state *state, PyObject *ops)
{
    return PyLong_Check(ops) ? PyTuple_Pack(1, ops) : sl_py_items(state, ops, OPS_MAX, "ops");
}

static sl_err all_ready(struct py_engine *self, const uint64_t *numbers, Py_ssize_t count,
                        struct sl_rank_layers what, uint64_t timeout_ns, struct sl_error *why)
{
    sl_err err = SL_OK;
    for (Py_ssize_t i = 0; err == SL_OK && i < count; i++) {
        what.op_number = numbers[i];
        err = sl_layers_ready(self->engine, &what, timeout_ns, why);
    }
    return err;
}

PyObject *sl_py_layers_ready(PyObject *object, PyObject *args, PyObject *names)
{
    static char *keywords[] = {"ops", "rank", "layers", "timeout", NULL};
    struct py_engine *self = (struct py_engine *)object;
    struct py_state *state = sl_py_state(object);
    PyObject *ops, *rank, *layers, *timeout = Py_None, *items;
    struct sl_rank_layers what = {.op_number = 0};
    uint64_t timeout_ns = 0, *numbers = NULL;
    struct sl_error why = {.code = SL_OK};
    sl_err err = SL_ERR_INVALID;
    if (!PyArg_ParseTupleAndKeywords(args, names, "OOO|O:layers_ready", keywords, &ops, &rank,
                                     &layers, &timeout) ||
        !sl_py_u32(rank, &what.rank) || !sl_py_u32(layers, &what.layers) ||
        !sl_py_timeout(timeout, &timeout_ns) || (items = numbers_of(state, ops)) == NULL) {
        return NULL;
    }
    Py_ssize_t count = PyTuple_Size(items);
    numbers = PyMem_Calloc((size_t)count + 1, sizeof *numbers);
    bool fine = numbers != NULL;
    if (!fine) {
        PyErr_NoMemory();
    }
    for (Py_ssize_t i = 0; fine && i < count; i++) {
        fine = sl_glue_u64(PyTuple_GetItem(items, i), &numbers[i]);
    }
    fine = fine && sl_py_enter(self);
    if (fine) {
        PyThreadState *unlocked = PyEval_SaveThread();
        err = all_ready(self, numbers, count, what, timeout_ns, &why);
        PyEval_RestoreThread(unlocked);
        sl_py_leave(self);
    }
    PyMem_Free(numbers);
    Py_DECREF(items);
    if (!fine) {
        return NULL;
    }
    return err == SL_OK ? Py_NewRef(Py_None) : sl_py_raise(state, err, &why);
}

PyObject *sl_py_layers_wait(PyObject *object, PyObject *args, PyObject *names)
{
    static char *keywords[] = {"op", "rank", "layers", "timeout", NULL};
    struct py_engine *self = (struct py_engine *)object;
    PyObject *op, *rank, *layers, *timeout = Py_None;
    struct sl_rank_layers what = {.op_number = 0};
    struct sl_layers_in in = {.layers = 0};
    uint64_t timeout_ns = 0;
    struct sl_error why = {.code = SL_OK};
    sl_err err;
    if (!PyArg_ParseTupleAndKeywords(args, names, "OOO|O:layers_wait", keywords, &op, &rank,
                                     &layers, &timeout) ||
        !sl_glue_u64(op, &what.op_number) || !sl_py_u32(rank, &what.rank) ||
        !sl_py_u32(layers, &what.layers) || !sl_py_timeout(timeout, &timeout_ns) ||
        !sl_py_enter(self)) {
        return NULL;
    }
    PyThreadState *unlocked = PyEval_SaveThread();
    err = sl_layers_wait(self->engine, &what, timeout_ns, &in, &why);
    PyEval_RestoreThread(unlocked);
    sl_py_leave(self);
    return err == SL_OK ? Py_BuildValue("(II)", in.layers, in.block_count)
                        : sl_py_raise(sl_py_state(object), err, &why);
}
