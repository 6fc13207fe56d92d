/* client/python/hints.c - what an engine knows of sessions: from a dict, and between requests. */
#include "client/python/internal.h"

#include <string.h>

/* The place of a word in a list that NULL ends; 0 is nothing. */
static bool word_take(PyObject *word, const char *name, const char *const *list, uint32_t *out)
{
    const char *text = PyUnicode_Check(word) ? PyUnicode_AsUTF8AndSize(word, NULL) : NULL;
    for (uint32_t i = 0; text != NULL && list[i] != NULL; i++) {
        if (strcmp(list[i], text) == 0) {
            *out = i + 1;
            return true;
        }
    }
    if (!PyErr_Occurred()) {
        PyErr_Format(PyExc_ValueError, "hints: %s is %R", name, word);
    }
    return false;
}

/* Borrowed from value. */
static bool name_take(const char *of, PyObject *value, const char **out)
{
    Py_ssize_t length = 0;
    const char *text = PyUnicode_AsUTF8AndSize(value, &length);
    if (text != NULL && (length == 0 || strlen(text) != (size_t)length)) {
        PyErr_Format(PyExc_ValueError, "%s: session_id is %R", of, value);
        return false;
    }
    *out = text;
    return text != NULL;
}

static bool hint_take(PyObject *name, PyObject *value, struct sl_hints *hints)
{
    static const char *const sessions[] = {"ends", "goes on", NULL};
    static const char *const priorities[] = {"low", "normal", "high", NULL};
    uint32_t session = hints->session, priority = hints->priority;
    const char *text = PyUnicode_Check(name) ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
    if (text != NULL && strcmp(text, "session") == 0) {
        bool fine = value == Py_None || word_take(value, text, sessions, &session);
        hints->session = (enum sl_session)session;
        return fine;
    }
    if (text != NULL && strcmp(text, "priority") == 0) {
        bool fine = value == Py_None || word_take(value, text, priorities, &priority);
        hints->priority = (enum sl_priority)priority;
        return fine;
    }
    if (text != NULL && strcmp(text, "keep") == 0) {
        return sl_py_seconds(value, &hints->keep_ns);
    }
    if (text != NULL && strcmp(text, "pause") == 0) {
        return sl_py_seconds(value, &hints->pause_ns);
    }
    if (text != NULL && strcmp(text, "session_id") == 0) { /* lent by the dict */
        return value == Py_None || name_take("hints", value, &hints->session_id);
    }
    if (!PyErr_Occurred()) {
        PyErr_Format(PyExc_ValueError,
                     "hints: there is no %R, but session, session_id, pause, priority and keep",
                     name);
    }
    return false;
}

bool sl_py_hints_take(PyObject *hints, struct sl_hints *out)
{
    PyObject *name = NULL, *value = NULL;
    Py_ssize_t at = 0;
    if (hints == NULL || hints == Py_None) {
        return true;
    }
    if (!PyDict_Check(hints)) {
        PyErr_SetString(PyExc_TypeError, "hints: a dict is needed");
        return false;
    }
    while (PyDict_Next(hints, &at, &name, &value)) {
        if (!hint_take(name, value, out)) {
            return false;
        }
    }
    return true;
}

PyObject *sl_py_session_pause(PyObject *object, PyObject *args, PyObject *names)
{
    static char *words[] = {"session_id", "pause", "timeout", NULL};
    struct py_client *self = (struct py_client *)object;
    PyObject *name_given, *pause, *timeout = NULL;
    const char *name = NULL; /* lent by the arguments */
    uint64_t pause_ns = SL_PAUSE_UNKNOWN, timeout_ns;
    if (!PyArg_ParseTupleAndKeywords(args, names, "OO|$O:session_pause", words, &name_given, &pause,
                                     &timeout) ||
        !name_take("session_pause", name_given, &name) ||
        (pause != Py_None && !sl_py_seconds(pause, &pause_ns)) ||
        !sl_py_timeout(timeout, &timeout_ns) || !sl_py_enter(self)) {
        return NULL;
    }
    struct sl_error why = {.code = SL_OK};
    sl_err err;
    PyThreadState *unlocked = PyEval_SaveThread();
    err = sl_session_pause(self->client, name, pause_ns, timeout_ns, &why);
    PyEval_RestoreThread(unlocked);
    sl_py_leave(self);
    return err == SL_OK || err == SL_ERR_NOT_FOUND ? PyBool_FromLong(err == SL_OK)
                                                   : sl_py_raise(sl_py_state(object), err, &why);
}

PyObject *sl_py_hint(PyObject *object, PyObject *args, PyObject *names)
{
    static char *words[] = {"keys", "hints", "asked", "lane", "timeout", NULL};
    struct py_client *self = (struct py_client *)object;
    struct sl_hints hints = {.session = SL_SESSION_UNKNOWN};
    struct py_keys keys = {.items = NULL};
    PyObject *sequence, *dict, *timeout = NULL, *result = NULL;
    uint64_t timeout_ns;
    uint32_t lane = 0;
    int asked = 0;
    if (!PyArg_ParseTupleAndKeywords(args, names, "OO|$pO&O:hint", words, &sequence, &dict, &asked,
                                     sl_py_u32_into, &lane, &timeout) ||
        !sl_py_timeout(timeout, &timeout_ns) || !sl_py_hints_take(dict, &hints)) {
        return NULL;
    }
    if (sl_py_keys_take(sl_py_state(object), sequence, &keys) && sl_py_enter(self)) {
        const struct sl_hinted of = {
            .keys = keys.keys, .count = keys.count, .asked = asked != 0, .lane = lane};
        struct sl_error why = {.code = SL_OK};
        sl_err err;
        PyThreadState *unlocked = PyEval_SaveThread();
        err = sl_hint_batch(self->client, &hints, &of, timeout_ns, &why);
        PyEval_RestoreThread(unlocked);
        sl_py_leave(self);
        result = err == SL_OK ? Py_NewRef(Py_None) : sl_py_raise(sl_py_state(object), err, &why);
    }
    sl_py_keys_release(&keys);
    return result;
}

PyObject *sl_py_set_origin(PyObject *module, PyObject *args, PyObject *names)
{
    static char *words[] = {"request", "traceparent", NULL};
    struct sl_origin origin = {.request = NULL};
    struct sl_error why = {.code = SL_OK};
    if (!PyArg_ParseTupleAndKeywords(args, names, "|zz:set_origin", words, &origin.request,
                                     &origin.traceparent)) {
        return NULL;
    }
    sl_err err = sl_origin_set(&origin, &why);
    return err == SL_OK ? Py_NewRef(Py_None) : sl_py_raise(PyModule_GetState(module), err, &why);
}
