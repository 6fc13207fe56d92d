/* client/python/view.cpp - the type View: a pinned value in shared memory. */
#include "client/python/internal.hpp"

namespace py
{

struct view {
    view(client &used, const sl_view &taken) : of(kept<client>::beside(used)), at(taken)
    {
    }
    ~view()
    {
        unpin();
    }
    void unpin()
    {
        if (of && !of->foreign()) { /* in a forked child the pin belongs to the parent */
            sl_view_release(of->at, &at);
        }
        of.drop();
    }
    void release()
    {
        released = true;
        if (exports == 0) {
            unpin();
        }
    }

    kept<client> of; /* while pinned */
    sl_view at;
    Py_ssize_t exports = 0; /* buffers that were handed out */
    bool released = false;
};

ref view_new(client &of, sl_view *taken)
{
    try {
        return make<view>(kinds.view, of, *taken);
    } catch (const raised &) {
        sl_view_release(of.at, taken);
        throw;
    }
}

static void usable(const view &self)
{
    if (self.released) {
        refuse(SL_ERR_INVALID, "the view is released");
    }
}

static int view_getbuffer(PyObject *object, Py_buffer *buffer, int flags)
{
    auto &self = of<view>(object);
    buffer->obj = nullptr;
    if (self.released) {
        PyErr_SetString(PyExc_BufferError, "the view is released");
        return -1;
    }
    /* Never written to: PyBuffer_FillInfo refuses PyBUF_WRITABLE. */
    if (PyBuffer_FillInfo(buffer, object, const_cast<void *>(self.at.at),
                          static_cast<Py_ssize_t>(self.at.length_bytes), 1, flags) != 0) {
        return -1;
    }
    self.exports++;
    return 0;
}

static void view_releasebuffer(PyObject *object, Py_buffer *)
{
    auto &self = of<view>(object);
    self.exports--;
    if (self.exports == 0 && self.released) {
        self.unpin();
    }
}

static Py_ssize_t view_length(PyObject *object)
{
    return guarded([&] {
        usable(of<view>(object));
        return static_cast<Py_ssize_t>(of<view>(object).at.length_bytes);
    });
}

static void view_release(view &self)
{
    self.release();
}

static ref view_enter(view &self)
{
    usable(self);
    return share(object(&self));
}

static void view_exit(view &self, PyObject *, PyObject *, PyObject *)
{
    self.release();
}

static bool view_released(view &self)
{
    return self.released;
}

static bool view_pinned(view &self)
{
    return static_cast<bool>(self.of);
}

void view_add(PyObject *module)
{
    static PyMethodDef functions[] = {
        METHOD("release", "()", view_release,
               "Releases the pin: at once, or with the last memoryview or array over the view."),
        WITH(view_enter, view_exit),
        last_method,
    };
    static PyGetSetDef attributes[] = {
        attribute<view_released>("released", "Whether release() was called."),
        attribute<view_pinned>("pinned", "Whether the bytes are still held in memory."),
        last_attribute,
    };
    kinds.view = add_type<view>(
        module, "sluice.View",
        "A value in shared memory, read-only and without a copy: memoryview(view), "
        "numpy.frombuffer(view), bytes(view). It stays unchanged until it is released.",
        functions, attributes,
        {{Py_bf_getbuffer, reinterpret_cast<void *>(view_getbuffer)},
         {Py_bf_releasebuffer, reinterpret_cast<void *>(view_releasebuffer)},
         {Py_sq_length, reinterpret_cast<void *>(view_length)}});
}

} // namespace py
