/* client/python/glue/glue.c - see glue.h. */
#include "client/python/glue/glue.h"

#include <string.h>

PyObject *sl_glue_new(PyTypeObject *type)
{
    allocfunc make = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    return make(type, 0);
}

void sl_glue_free(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF((PyObject *)type);
}

/* ---- modules ---- */

static PyObject **state_of(PyObject *module, size_t *count)
{
    *count = (size_t)PyModule_GetDef(module)->m_size / sizeof(PyObject *);
    return PyModule_GetState(module);
}

int sl_glue_traverse(PyObject *module, visitproc visit, void *arg)
{
    size_t count = 0;
    PyObject **held = state_of(module, &count);
    for (size_t i = 0; i < count; i++) {
        Py_VISIT(held[i]);
    }
    return 0;
}

int sl_glue_clear(PyObject *module)
{
    size_t count = 0;
    PyObject **held = state_of(module, &count);
    for (size_t i = 0; i < count; i++) {
        Py_CLEAR(held[i]);
    }
    return 0;
}

void sl_glue_module_free(void *module)
{
    (void)sl_glue_clear(module);
}

int sl_glue_type_add(PyObject *module, PyType_Spec *spec, PyTypeObject **out)
{
    *out = (PyTypeObject *)PyType_FromModuleAndSpec(module, spec, NULL);
    return *out == NULL ? -1 : PyModule_AddType(module, *out);
}

int sl_glue_attribute_add(PyObject *object, const char *name, PyObject *value)
{
    int failed = value == NULL ? -1 : PyObject_SetAttrString(object, name, value);
    Py_XDECREF(value);
    return failed;
}

/* ---- values ---- */

bool sl_glue_u64_other(PyObject *number, uint64_t *out)
{
    PyObject *whole = PyNumber_Index(number);
    if (whole == NULL) {
        return false;
    }
    *out = PyLong_AsUnsignedLongLong(whole);
    Py_DECREF(whole);
    return !(*out == (uint64_t)-1 && PyErr_Occurred() != NULL);
}

PyObject *sl_glue_text_of(const char *at, size_t length)
{
    return PyUnicode_DecodeUTF8(at, (Py_ssize_t)length, "replace");
}

PyObject *sl_glue_text(const char *text)
{
    return sl_glue_text_of(text, strlen(text));
}

void sl_glue_list_put(PyObject **list, Py_ssize_t index, PyObject *item)
{
    if (item == NULL || PyList_SetItem(*list, index, item) != 0) {
        Py_CLEAR(*list);
    }
}
