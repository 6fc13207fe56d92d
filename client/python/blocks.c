/* client/python/blocks.c - looking blocks up by the engine's own keys, and the descriptor of ends. */
#include "client/python/internal.h"

/* ---- look-ups ---- */

struct looking {
    struct py_hashes hashes;
    struct sl_look look;
    struct sl_looked looked;
    unsigned char *there; /* NULL: not wanted */
};

static bool looking_take(struct py_state *state, PyObject *args, PyObject *names,
                         const char *format, struct looking *out)
{
    static char *words[] = {"hashes", "hash_bytes", "window", "hold", NULL};
    PyObject *hashes, *hash_bytes = NULL, *window = NULL, *hold = NULL;
    uint64_t hold_ns = 0;
    *out = (struct looking){.there = NULL};
    if (!PyArg_ParseTupleAndKeywords(args, names, format, words, &hashes, &hash_bytes, &window,
                                     &hold) ||
        (window != NULL && !sl_py_u32(window, &out->look.window)) ||
        !sl_py_seconds(hold, &hold_ns) ||
        !sl_py_hashes_take(state, hashes, hash_bytes, &out->hashes)) {
        return false;
    }
    out->look.hashes = out->hashes.at;
    out->look.hash_bytes = out->hashes.count > 0 ? out->hashes.hash_bytes : 1;
    out->look.count = out->hashes.count;
    out->look.hold_ns = hold_ns;
    return true;
}

/* Gives whether it was done; else an exception is set. */
static bool looking_do(PyObject *object, struct looking *looking)
{
    struct py_engine *engine = (struct py_engine *)object;
    struct sl_error why = {.code = SL_OK};
    if (!sl_py_enter(engine)) {
        return false;
    }
    PyThreadState *unlocked = PyEval_SaveThread();
    sl_err err =
        sl_engine_look(engine->engine, &looking->look, &looking->looked, looking->there, &why);
    PyEval_RestoreThread(unlocked);
    sl_py_leave(engine);
    if (err != SL_OK) {
        sl_py_raise(sl_py_state(object), err, &why);
    }
    return err == SL_OK;
}

PyObject *sl_py_look_blocks(PyObject *self, PyObject *args, PyObject *names)
{
    struct looking looking;
    PyObject *prefix = NULL;
    if (looking_take(sl_py_state(self), args, names, "O|$OOO:look", &looking) &&
        looking_do(self, &looking)) {
        prefix = PyLong_FromUnsignedLong(looking.looked.prefix_count);
    }
    sl_py_hashes_release(&looking.hashes);
    return prefix;
}

PyObject *sl_py_look_there(PyObject *self, PyObject *args, PyObject *names)
{
    struct looking looking;
    PyObject *result = NULL, *bits = NULL;
    bool fine = looking_take(sl_py_state(self), args, names, "O|$OOO:look_there", &looking);
    if (fine) {
        bits = PyBytes_FromStringAndSize(NULL, ((Py_ssize_t)looking.look.count + 7) / 8);
        looking.there = bits == NULL ? NULL : (unsigned char *)PyBytes_AsString(bits);
        fine = looking.there != NULL;
    }
    for (uint32_t i = 0; fine && i < (looking.look.count + 7) / 8; i++) {
        looking.there[i] = 0;
    }
    if (fine && looking_do(self, &looking)) {
        result = Py_BuildValue("(kO)", (unsigned long)looking.looked.prefix_count, bits);
    }
    Py_XDECREF(bits);
    sl_py_hashes_release(&looking.hashes);
    return result;
}

PyObject *sl_py_look_prefix(PyObject *module, PyObject *args)
{
    struct sl_look_class classes[SL_PY_POOLS_MAX];
    PyObject *sequence, *limit, *list = NULL, *result = NULL;
    uint32_t count = 0, taken = 0;
    (void)module;
    if (!PyArg_ParseTuple(args, "OO:look_prefix", &sequence, &limit) || !sl_py_u32(limit, &count)) {
        return NULL;
    }
    list = PySequence_List(sequence);
    Py_ssize_t number = list == NULL ? 0 : PyList_Size(list);
    bool fine = list != NULL && number >= 1 && number <= SL_PY_POOLS_MAX;
    if (list != NULL && !fine) {
        PyErr_SetString(PyExc_ValueError, "look_prefix: 1 to 8 classes");
    }
    for (; fine && taken < (uint32_t)number; taken++) {
        const char *bits = NULL;
        Py_ssize_t length = 0;
        uint32_t window = 0;
        PyObject *pair = PyList_GetItem(list, (Py_ssize_t)taken);
        fine = PyTuple_Check(pair) &&
               PyArg_ParseTuple(pair, "y#O&:look_prefix", &bits, &length, sl_py_u32_into, &window);
        if (!fine && PyErr_Occurred() == NULL) {
            PyErr_SetString(PyExc_TypeError, "pairs of bytes and a window are needed");
        } else if (fine && (uint64_t)length < ((uint64_t)count + 7) / 8) {
            PyErr_SetString(PyExc_ValueError, "look_prefix: a bitmap is too short");
            fine = false;
        }
        classes[taken] =
            (struct sl_look_class){.there = (const unsigned char *)bits, .window = window};
    }
    if (fine) {
        result = PyLong_FromUnsignedLong(sl_look_prefix(classes, taken, count));
    }
    Py_XDECREF(list);
    return result;
}

/* ---- the descriptor ---- */

PyObject *sl_py_event_fd(PyObject *object, PyObject *none)
{
    struct py_client *self = (struct py_client *)object;
    struct sl_error why = {.code = SL_OK};
    int fd = -1;
    (void)none;
    if (!sl_py_enter(self)) {
        return NULL;
    }
    PyThreadState *unlocked = PyEval_SaveThread();
    sl_err err = sl_client_event_fd(self->client, &fd, &why);
    PyEval_RestoreThread(unlocked);
    sl_py_leave(self);
    return err == SL_OK ? PyLong_FromLong(fd) : sl_py_raise(sl_py_state(object), err, &why);
}
