/* client/mooncake/python/arguments.c - arguments of methods as C's values, and results as Python's.
 *
 * Engines hand over thousands of keys with many pieces each: lists and ints of exactly these types
 * are read without making anything for an element. */
#include "client/mooncake/python/internal.h"

#include <string.h>

/* ---- signatures ---- */

static const char *const kind_names[] = {
    [MC_KEY] = "str | bytes",
    [MC_TEXT] = "str",
    [MC_NUMBER] = "int",
    [MC_FLAG] = "bool",
    [MC_VALUE] = "collections.abc.Buffer",
    [MC_CONFIG] = "mooncake.store.ReplicateConfig",
    [MC_KEYS] = "list[str | bytes]",
    [MC_NUMBERS] = "list[int]",
    [MC_LISTS] = "list[list[int]]",
    [MC_VALUES] = "list[collections.abc.Buffer]",
    [MC_OBJECT] = "object",
};

static PyObject *joined(PyObject *left, const char *format, const char *a, const char *b)
{
    PyObject *right = left == NULL ? NULL : PyUnicode_FromFormat(format, a, b);
    PyObject *both = right == NULL ? NULL : PyUnicode_Concat(left, right);
    Py_XDECREF(left);
    Py_XDECREF(right);
    return both;
}

static PyObject *signature(const struct mc_call *call)
{
    PyObject *text = PyUnicode_FromString("(self: mooncake.store.MooncakeDistributedStore");
    for (const struct mc_argument *at = call->arguments;
         at < call->arguments + MC_ARGUMENTS_MAX && at->name != NULL; at++) {
        text = joined(text, ", %s: %s", at->name, kind_names[at->kind]);
        if (at->otherwise != NULL) {
            text = joined(text, " = %s%s", at->otherwise, "");
        }
    }
    return joined(text, ") -> %s%s", call->result, "");
}

PyObject *mc_mismatch(const struct mc_call *call, PyObject *names)
{
    if (PyErr_Occurred() != NULL && !PyErr_ExceptionMatches(PyExc_TypeError) &&
        !PyErr_ExceptionMatches(PyExc_OverflowError) && !PyErr_ExceptionMatches(PyExc_ValueError)) {
        return NULL;
    }
    PyErr_Clear();
    PyObject *accepted = signature(call);
    PyObject *given = names == NULL ? PyUnicode_FromString("") : PyObject_Str(names);
    if (accepted != NULL && given != NULL) {
        PyErr_Format(PyExc_TypeError,
                     "%s(): incompatible function arguments. The following argument types are "
                     "supported:\n    1. %U\n\nInvoked with: kwargs: %U",
                     call->name, accepted, given);
    }
    Py_XDECREF(accepted);
    Py_XDECREF(given);
    return NULL;
}

/* ---- one value ---- */

static bool bytes_take(const char *at, Py_ssize_t length, struct sl_object_key *out)
{
    *out = (struct sl_object_key){.at = at,
                                  .length = length > INT32_MAX ? INT32_MAX : (uint32_t)length};
    return at != NULL;
}

bool mc_string_take(PyObject *object, struct sl_object_key *out)
{
    Py_ssize_t length = 0;
    const char *at = PyUnicode_Check(object) ? PyUnicode_AsUTF8AndSize(object, &length) : NULL;
    return bytes_take(at, length, out);
}

bool mc_key_take(PyObject *object, struct sl_object_key *out)
{
    return PyUnicode_Check(object) || !PyBytes_Check(object)
               ? mc_string_take(object, out)
               : bytes_take(PyBytes_AsString(object), PyBytes_Size(object), out);
}

PyObject *mc_key_name(PyObject *key)
{
    PyObject *name =
        PyBytes_Check(key) ? PyUnicode_FromEncodedObject(key, "utf-8", "strict") : NULL;
    if (name == NULL && PyErr_Occurred() != NULL && PyErr_ExceptionMatches(PyExc_ValueError)) {
        PyErr_Clear(); /* no UTF-8 */
    }
    return name != NULL || PyErr_Occurred() != NULL ? name : Py_NewRef(key);
}

/* What has a truth of its own: bools, ints, None, numpy's; no texts and no lists. */
static bool flag_take(PyObject *object, bool *out)
{
    if (PySequence_Check(object) || PyDict_Check(object)) {
        return false;
    }
    int truth = PyObject_IsTrue(object);
    *out = truth == 1;
    return truth >= 0;
}

void mc_view_release(struct mc_view *view)
{
    if (view->held) {
        PyBuffer_Release(&view->view);
        view->held = false;
    }
    PyMem_Free(view->copy);
    view->copy = NULL;
}

const void *mc_view_at(const struct mc_view *view)
{
    return view->copy != NULL ? view->copy : view->view.buf;
}

/* What is not contiguous is compacted, in C's order. */
static bool view_compact(PyObject *object, struct mc_view *out)
{
    if (PyObject_GetBuffer(object, &out->view, PyBUF_FULL_RO) != 0) {
        return false;
    }
    out->held = true;
    out->copy = PyMem_Malloc((size_t)out->view.len + 1);
    if (out->copy == NULL) {
        PyErr_NoMemory();
    } else if (PyBuffer_ToContiguous(out->copy, &out->view, out->view.len, 'C') == 0) {
        return true;
    }
    mc_view_release(out);
    return false;
}

bool mc_view_take(PyObject *object, struct mc_view *out)
{
    *out = (struct mc_view){.held = false};
    if (!PyObject_CheckBuffer(object)) {
        return false;
    }
    if (PyObject_GetBuffer(object, &out->view, PyBUF_SIMPLE) == 0) {
        out->held = true;
        return true;
    }
    if (!PyErr_ExceptionMatches(PyExc_BufferError) && !PyErr_ExceptionMatches(PyExc_ValueError)) {
        return false;
    }
    PyErr_Clear();
    return view_compact(object, out);
}

bool mc_made(const void *at)
{
    if (at == NULL) {
        PyErr_NoMemory();
    }
    return at != NULL;
}

/* ---- lists ---- */

PyObject *mc_list_take(PyObject *object)
{
    if (PyList_CheckExact(object)) {
        return PyList_GetSlice(object, 0, PyList_Size(object));
    }
    if (!PySequence_Check(object) || PyUnicode_Check(object) || PyBytes_Check(object)) {
        return NULL;
    }
    return PySequence_List(object);
}

/* False: too many. */
static bool list_count(PyObject *list, uint32_t *out)
{
    Py_ssize_t count = PyList_Size(list);
    *out = (uint32_t)count;
    return count >= 0 && count <= INT32_MAX;
}

void mc_keys_release(struct mc_keys *keys)
{
    PyMem_Free(keys->at);
    keys->at = NULL;
    Py_CLEAR(keys->held);
}

bool mc_keys_take(PyObject *object, struct mc_keys *out)
{
    *out = (struct mc_keys){.held = mc_list_take(object)};
    bool fine = out->held != NULL && list_count(out->held, &out->count);
    if (fine) {
        out->at = PyMem_Malloc(((size_t)out->count + 1) * sizeof *out->at);
        fine = mc_made(out->at);
    }
    for (uint32_t i = 0; fine && i < out->count; i++) {
        fine = mc_key_take(PyList_GetItem(out->held, (Py_ssize_t)i), &out->at[i]);
    }
    if (!fine) {
        mc_keys_release(out);
    }
    return fine;
}

/* Reads the list's numbers, which may run code of theirs: it is asked for its items one by one. */
static bool numbers_read(PyObject *list, uint32_t count, uint64_t *to)
{
    for (uint32_t i = 0; i < count; i++) {
        PyObject *item = PyList_GetItem(list, (Py_ssize_t)i);
        if (item == NULL || !sl_glue_u64(item, &to[i])) {
            return false;
        }
    }
    return true;
}

static bool numbers_take(PyObject *object, struct mc_numbers *out)
{
    PyObject *list = mc_list_take(object);
    *out = (struct mc_numbers){.at = NULL};
    bool fine = list != NULL && list_count(list, &out->count);
    if (fine) {
        out->at = PyMem_Malloc(((size_t)out->count + 1) * sizeof *out->at);
        fine = mc_made(out->at);
    }
    fine = fine && numbers_read(list, out->count, out->at);
    Py_XDECREF(list);
    if (!fine) {
        PyMem_Free(out->at);
        out->at = NULL;
    }
    return fine;
}

static void lists_release(struct mc_lists *lists)
{
    PyMem_Free(lists->at);
    PyMem_Free(lists->counts);
    lists->at = NULL;
    lists->counts = NULL;
}

static bool lists_room(struct mc_lists *lists, size_t more, size_t *room)
{
    if (lists->total + more <= *room) {
        return true;
    }
    *room = (lists->total + more) * 2;
    uint64_t *at = PyMem_Realloc(lists->at, *room * sizeof *at);
    if (at == NULL) {
        PyErr_NoMemory();
        return false;
    }
    lists->at = at;
    return true;
}

static bool lists_add(struct mc_lists *lists, PyObject *item, uint32_t index, size_t *room)
{
    /* A list of exactly that type is read in place: an int's own code cannot run. */
    PyObject *list = item == NULL              ? NULL
                     : PyList_CheckExact(item) ? Py_NewRef(item)
                                               : mc_list_take(item);
    uint32_t count = 0;
    bool fine = list != NULL && list_count(list, &count) && lists_room(lists, count, room) &&
                numbers_read(list, count, lists->at + lists->total);
    Py_XDECREF(list);
    lists->counts[index] = count;
    lists->total += fine ? count : 0;
    return fine;
}

static bool lists_take(PyObject *object, struct mc_lists *out)
{
    PyObject *list = mc_list_take(object);
    *out = (struct mc_lists){.at = NULL};
    bool fine = list != NULL && list_count(list, &out->count);
    size_t room = fine ? (size_t)out->count * 2 + 1 : 0;
    if (fine) {
        out->at = PyMem_Malloc(room * sizeof *out->at);
        out->counts = PyMem_Malloc(((size_t)out->count + 1) * sizeof *out->counts);
        fine = mc_made(out->at) && mc_made(out->counts);
    }
    for (uint32_t i = 0; fine && i < out->count; i++) {
        fine = lists_add(out, PyList_GetItem(list, (Py_ssize_t)i), i, &room);
    }
    Py_XDECREF(list);
    if (!fine) {
        lists_release(out);
    }
    return fine;
}

static void views_release(struct mc_views *views)
{
    for (uint32_t i = 0; views->at != NULL && i < views->count; i++) {
        mc_view_release(&views->at[i]);
    }
    PyMem_Free(views->at);
    views->at = NULL;
}

static bool views_take(PyObject *object, struct mc_views *out)
{
    PyObject *list = mc_list_take(object);
    *out = (struct mc_views){.at = NULL};
    bool fine = list != NULL && list_count(list, &out->count);
    if (fine) {
        out->at = PyMem_Calloc((size_t)out->count + 1, sizeof *out->at);
        fine = mc_made(out->at);
    }
    for (uint32_t i = 0; fine && i < out->count; i++) {
        fine = mc_view_take(PyList_GetItem(list, (Py_ssize_t)i), &out->at[i]);
    }
    Py_XDECREF(list);
    if (!fine) {
        views_release(out);
    }
    return fine;
}

/* ---- all of a call ---- */

static bool value_take(PyObject *self, enum mc_kind kind, struct mc_value *value)
{
    switch (kind) {
    case MC_KEY:
        return mc_key_take(value->object, &value->key);
    case MC_TEXT:
        return mc_string_take(value->object, &value->key) &&
               strlen(value->key.at) == value->key.length;
    case MC_NUMBER:
        return sl_glue_u64(value->object, &value->number);
    case MC_FLAG:
        return flag_take(value->object, &value->flag);
    case MC_VALUE:
        return mc_view_take(value->object, &value->view);
    case MC_CONFIG:
        return mc_terms_take(value->object, mc_state_of(self), &value->terms);
    case MC_KEYS:
        return mc_keys_take(value->object, &value->keys);
    case MC_NUMBERS:
        return numbers_take(value->object, &value->numbers);
    case MC_LISTS:
        return lists_take(value->object, &value->lists);
    case MC_VALUES:
        return views_take(value->object, &value->views);
    default:
        return true;
    }
}

static void value_release(enum mc_kind kind, struct mc_value *value)
{
    switch (kind) {
    case MC_VALUE:
        mc_view_release(&value->view);
        break;
    case MC_CONFIG:
        mc_terms_release(&value->terms);
        break;
    case MC_KEYS:
        mc_keys_release(&value->keys);
        break;
    case MC_NUMBERS:
        PyMem_Free(value->numbers.at);
        break;
    case MC_LISTS:
        lists_release(&value->lists);
        break;
    case MC_VALUES:
        views_release(&value->views);
        break;
    default:
        break;
    }
}

static int argument_find(const struct mc_call *call, PyObject *name)
{
    for (int i = 0; i < MC_ARGUMENTS_MAX && call->arguments[i].name != NULL; i++) {
        if (PyUnicode_CompareWithASCIIString(name, call->arguments[i].name) == 0) {
            return i;
        }
    }
    return -1;
}

/* Each argument to its place. */
static bool arguments_place(const struct mc_call *call, PyObject *const *args, Py_ssize_t count,
                            PyObject *names, struct mc_value *values)
{
    Py_ssize_t named = names == NULL ? 0 : PyTuple_Size(names);
    int known = 0;
    while (known < MC_ARGUMENTS_MAX && call->arguments[known].name != NULL) {
        known++;
    }
    if (count > known) {
        return false;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        values[i].object = args[i];
    }
    for (Py_ssize_t i = 0; i < named; i++) {
        int place = argument_find(call, PyTuple_GetItem(names, i));
        if (place < 0 || values[place].object != NULL) {
            return false;
        }
        values[place].object = args[count + i];
    }
    for (int i = 0; i < known; i++) {
        if (values[i].object == NULL && call->arguments[i].otherwise == NULL) {
            return false;
        }
    }
    return true;
}

bool mc_take(PyObject *self, const struct mc_call *call, PyObject *const *args, Py_ssize_t count,
             PyObject *names, struct mc_value *values)
{
    memset(values, 0, MC_ARGUMENTS_MAX * sizeof *values);
    bool fine = arguments_place(call, args, count, names, values);
    int taken = 0;
    for (; fine && taken < MC_ARGUMENTS_MAX && call->arguments[taken].name != NULL; taken++) {
        fine = values[taken].object == NULL ||
               value_take(self, call->arguments[taken].kind, &values[taken]);
    }
    if (fine) {
        return true;
    }
    /* What failed holds nothing itself. */
    for (int i = 0; i + 1 < taken; i++) {
        if (values[i].object != NULL) {
            value_release(call->arguments[i].kind, &values[i]);
        }
    }
    (void)mc_mismatch(call, names);
    return false;
}

void mc_release(const struct mc_call *call, struct mc_value *values)
{
    for (int i = 0; i < MC_ARGUMENTS_MAX && call->arguments[i].name != NULL; i++) {
        if (values[i].object != NULL) {
            value_release(call->arguments[i].kind, &values[i]);
        }
    }
}

/* ---- results ---- */

PyObject *mc_codes(const int *codes, uint32_t count)
{
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (uint32_t i = 0; list != NULL && i < count; i++) {
        sl_glue_list_put(&list, i, PyLong_FromLong(codes[i]));
    }
    return list;
}

PyObject *mc_results(const int64_t *results, uint32_t count)
{
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (uint32_t i = 0; list != NULL && i < count; i++) {
        sl_glue_list_put(&list, i, PyLong_FromLongLong(results[i]));
    }
    return list;
}

PyObject *mc_same(long code, uint32_t count)
{
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (uint32_t i = 0; list != NULL && i < count; i++) {
        sl_glue_list_put(&list, i, PyLong_FromLong(code));
    }
    return list;
}
