/* client/python/glue/glue.h - what the native parts of both Python packages share: objects, modules
 * and their state, numbers, texts, lists. For the stable ABI of CPython 3.11. */
#ifndef SL_CLIENT_PYTHON_GLUE_GLUE_H
#define SL_CLIENT_PYTHON_GLUE_GLUE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>
#include <stdint.h>

/* ---- objects ---- */
/* Zeroed but for its head; NULL with an exception. */
PyObject *sl_glue_new(PyTypeObject *type);
/* The end of a dealloc: the object's memory, and its reference to its type. */
void sl_glue_free(PyObject *object);

/* ---- modules: the state is references and nothing else ---- */
int sl_glue_traverse(PyObject *module, visitproc visit, void *arg);
int sl_glue_clear(PyObject *module);
void sl_glue_module_free(void *module);
/* -1 with an exception. */
int sl_glue_type_add(PyObject *module, PyType_Spec *spec, PyTypeObject **out);
/* Takes the value, also on failure; NULL is a failure. */
int sl_glue_attribute_add(PyObject *object, const char *name, PyObject *value);

/* ---- values ---- */
/* Of all that is no int below 2^63. */
bool sl_glue_u64_other(PyObject *number, uint64_t *out);
/* An int, or what has __index__. False with an exception. Twice as fast as
 * PyLong_AsUnsignedLongLong where an address takes two of CPython's digits. */
static inline bool sl_glue_u64(PyObject *number, uint64_t *out)
{
    if (PyLong_Check(number)) {
        int overflow = 0;
        long value = PyLong_AsLongAndOverflow(number, &overflow);
        if (overflow == 0 && value >= 0) {
            *out = (uint64_t)value;
            return true;
        }
    }
    return sl_glue_u64_other(number, out);
}
/* What is no UTF-8 is replaced. */
PyObject *sl_glue_text(const char *text);
PyObject *sl_glue_text_of(const char *at, size_t length);
/* Takes the item. NULL is a failure: *list is let go, and NULL then. */
void sl_glue_list_put(PyObject **list, Py_ssize_t index, PyObject *item);

#endif
