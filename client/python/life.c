/* client/python/life.c - objects that are used, and end when they are closed and nobody uses them:
 * clients, engines, ops, pools. */
#include "client/python/internal.h"

void sl_py_begin(void *object, const struct py_kind *kind)
{
    struct py_life *life = object;
    life->kind = kind;
    life->forks = sl_py_forks();
    life->open = true;
}

bool sl_py_foreign(const void *object)
{
    return ((const struct py_life *)object)->forks != sl_py_forks();
}

bool sl_py_enter(void *object)
{
    struct py_life *life = object;
    if (!life->open || sl_py_foreign(life)) {
        sl_py_raise_text(sl_py_state(object), SL_ERR_INVALID,
                         life->open ? life->kind->foreign : life->kind->closed);
        return false;
    }
    life->uses++;
    return true;
}

void sl_py_hold(void *object)
{
    ((struct py_life *)object)->uses++;
}

void sl_py_leave(void *object)
{
    struct py_life *life = object;
    life->uses--;
    if (life->uses == 0 && !life->open) {
        life->kind->end(object);
    }
}

PyObject *sl_py_close(PyObject *object, PyObject *none)
{
    struct py_life *life = (struct py_life *)object;
    (void)none;
    life->open = false;
    if (life->uses == 0) {
        life->kind->end(object);
    }
    return Py_NewRef(Py_None);
}

PyObject *sl_py_with(PyObject *object, PyObject *none)
{
    (void)none;
    if (!sl_py_enter(object)) {
        return NULL;
    }
    sl_py_leave(object);
    return Py_NewRef(object);
}

PyObject *sl_py_exit(PyObject *object, PyObject *args)
{
    (void)args;
    return sl_py_close(object, NULL);
}

PyObject *sl_py_closed(PyObject *object, void *none)
{
    (void)none;
    return PyBool_FromLong(!((struct py_life *)object)->open);
}
