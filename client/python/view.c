/* client/python/view.c - the type View: a value where it lies in shared memory. */
#include "client/python/internal.h"

struct py_view {
    PyObject_HEAD struct py_client *client; /* a use of it, while pinned */
    struct sl_view view;
    Py_ssize_t exports; /* buffers that were handed out */
    bool pinned, released;
};

PyObject *sl_py_view_new(struct py_state *state, struct py_client *client, struct sl_view *view)
{
    struct py_view *self = (struct py_view *)sl_glue_new(state->view);
    if (self == NULL) {
        sl_view_release(client->client, view);
        return NULL;
    }
    self->client = (struct py_client *)Py_NewRef((PyObject *)client);
    self->view = *view;
    self->pinned = true;
    sl_py_hold(client);
    return (PyObject *)self;
}

static void view_unpin(struct py_view *self)
{
    if (self->pinned) {
        self->pinned = false;
        if (!sl_py_foreign(self->client)) { /* the pin is the parent's */
            sl_view_release(self->client->client, &self->view);
        }
        sl_py_leave(self->client);
    }
}

static PyObject *view_release(PyObject *object, PyObject *none)
{
    struct py_view *self = (struct py_view *)object;
    (void)none;
    self->released = true;
    if (self->exports == 0) {
        view_unpin(self);
    }
    return Py_NewRef(Py_None);
}

static void view_dealloc(PyObject *object)
{
    struct py_view *self = (struct py_view *)object;
    view_unpin(self);
    Py_XDECREF((PyObject *)self->client);
    sl_glue_free(object);
}

static bool view_usable(PyObject *object)
{
    struct py_view *self = (struct py_view *)object;
    if (self->released) {
        sl_py_raise_text(sl_py_state(object), SL_ERR_INVALID, "the view is released");
    }
    return !self->released;
}

static int view_getbuffer(PyObject *object, Py_buffer *buffer, int flags)
{
    struct py_view *self = (struct py_view *)object;
    buffer->obj = NULL;
    if (self->released) {
        PyErr_SetString(PyExc_BufferError, "the view is released");
        return -1;
    }
    /* Never written to: PyBuffer_FillInfo refuses PyBUF_WRITABLE. */
    if (PyBuffer_FillInfo(buffer, object, (void *)(uintptr_t)self->view.at,
                          (Py_ssize_t)self->view.length_bytes, 1, flags) != 0) {
        return -1;
    }
    self->exports++;
    return 0;
}

static void view_releasebuffer(PyObject *object, Py_buffer *buffer)
{
    struct py_view *self = (struct py_view *)object;
    (void)buffer;
    self->exports--;
    if (self->exports == 0 && self->released) {
        view_unpin(self);
    }
}

static Py_ssize_t view_length(PyObject *object)
{
    return view_usable(object) ? (Py_ssize_t)((struct py_view *)object)->view.length_bytes : -1;
}

static PyObject *view_enter(PyObject *object, PyObject *none)
{
    (void)none;
    return view_usable(object) ? Py_NewRef(object) : NULL;
}

static PyObject *view_exit(PyObject *object, PyObject *args)
{
    (void)args;
    return view_release(object, NULL);
}

static PyObject *view_released(PyObject *object, void *none)
{
    (void)none;
    return PyBool_FromLong(((struct py_view *)object)->released);
}

static PyObject *view_pinned(PyObject *object, void *none)
{
    (void)none;
    return PyBool_FromLong(((struct py_view *)object)->pinned);
}

static PyMethodDef view_methods[] = {
    {"release", view_release, METH_NOARGS,
     "Gives the pin back: at once, or when the last memoryview or array over it is gone."},
    {"__enter__", view_enter, METH_NOARGS, NULL},
    {"__exit__", view_exit, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static PyGetSetDef view_attributes[] = {
    {"released", view_released, NULL, "Whether release() was called.", NULL},
    {"pinned", view_pinned, NULL, "Whether the bytes are still held in memory.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot view_slots[] = {
    {Py_tp_doc, "A value where it lies in shared memory, read-only: memoryview(view), "
                "numpy.frombuffer(view), bytes(view). It "
                "stays unchanged and in memory until it is released."},
    {Py_tp_dealloc, (void *)view_dealloc},
    {Py_tp_methods, view_methods},
    {Py_tp_getset, view_attributes},
    {Py_bf_getbuffer, (void *)view_getbuffer},
    {Py_bf_releasebuffer, (void *)view_releasebuffer},
    {Py_sq_length, (void *)view_length},
    {0, NULL},
};
PyType_Spec sl_py_view_spec = {
    .name = "sluice.View",
    .basicsize = sizeof(struct py_view),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = view_slots,
};
