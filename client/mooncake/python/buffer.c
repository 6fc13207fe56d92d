/* client/mooncake/python/buffer.c - the type BufferHandle: a value where it lies, read-only, or a
 * copy of it, which may be written. */
#include "client/mooncake/python/internal.h"

struct mc_buffer {
    PyObject_HEAD struct sl_store_buffer *buffer;
};

static const struct sl_store_buffer *buffer_of(PyObject *object)
{
    return ((struct mc_buffer *)(void *)object)->buffer;
}

PyObject *mc_buffer_new(struct mc_state *state, struct sl_store_buffer *buffer)
{
    PyObject *object = sl_glue_new(state->buffer);
    if (object == NULL) {
        sl_store_buffer_release(&buffer);
        return NULL;
    }
    ((struct mc_buffer *)(void *)object)->buffer = buffer;
    return object;
}

/* Views hold the object, so nobody looks at the value any more. */
static void buffer_dealloc(PyObject *object)
{
    PyThreadState *unlocked = PyEval_SaveThread();
    sl_store_buffer_release(&((struct mc_buffer *)(void *)object)->buffer);
    PyEval_RestoreThread(unlocked);
    sl_glue_free(object);
}

static PyObject *buffer_ptr(PyObject *object, PyObject *none)
{
    (void)none;
    return PyLong_FromUnsignedLongLong(
        (unsigned long long)(uintptr_t)sl_store_buffer_at(buffer_of(object)));
}

static PyObject *buffer_size(PyObject *object, PyObject *none)
{
    (void)none;
    return PyLong_FromUnsignedLongLong(sl_store_buffer_length(buffer_of(object)));
}

static Py_ssize_t buffer_length(PyObject *object)
{
    return (Py_ssize_t)sl_store_buffer_length(buffer_of(object));
}

/* Of a value where it lies others read the same bytes: PyBuffer_FillInfo refuses PyBUF_WRITABLE.
 * Items are signed, as those of Mooncake's handles. */
static int buffer_get(PyObject *object, Py_buffer *view, int flags)
{
    static char format[] = "b";
    const struct sl_store_buffer *buffer = buffer_of(object);
    int failed = PyBuffer_FillInfo(view, object, (void *)(uintptr_t)sl_store_buffer_at(buffer),
                                   (Py_ssize_t)sl_store_buffer_length(buffer),
                                   !sl_store_buffer_is_copy(buffer), flags);
    if (failed == 0 && view->format != NULL) {
        view->format = format;
    }
    return failed;
}

static PyMethodDef buffer_methods[] = {
    {"ptr", buffer_ptr, METH_NOARGS,
     "The address; to be written where memoryview(handle) is not read-only."},
    {"size", buffer_size, METH_NOARGS, "Bytes."},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot buffer_slots[] = {
    {Py_tp_doc, "A value where it lies, read-only, or, where pins ran out, a copy: bytes(handle), "
                "memoryview(handle), torch.frombuffer(handle). It stays as long as the handle or a "
                "view of it."},
    {Py_tp_dealloc, (void *)buffer_dealloc},
    {Py_tp_methods, buffer_methods},
    {Py_bf_getbuffer, (void *)buffer_get},
    {Py_sq_length, (void *)buffer_length},
    {0, NULL},
};
PyType_Spec mc_buffer_spec = {
    .name = "mooncake.store.BufferHandle",
    .basicsize = sizeof(struct mc_buffer),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = buffer_slots,
};
