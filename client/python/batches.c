/* client/python/batches.c - the type Batches: many objects in the background, on threads of C. */
#include "client/python/internal.h"
#include "client/python/jobs.h"
#include "runtime/sl_hex.h"

#include <string.h>

#define TIMEOUT_NS_DEFAULT 10000000000ull
#define THREADS_DEFAULT    3u
#define DEPTH_DEFAULT      1024u

struct py_batches {
    struct py_life life;
    struct py_client *client; /* a use of it */
    struct py_jobs *jobs;
    PyObject *prefix; /* str, or NULL */
    const char *prefix_at;
    uint32_t prefix_bytes;
    uint64_t timeout_ns;
};

/* A job with what it needs of Python's, released under the interpreter's lock. */
struct batch {
    struct py_job job; /* the first one */
    struct py_keys keys;
    char *names; /* that were made from the keys, or NULL */
    struct sl_piece *pieces;
    Py_buffer *views;
    uint32_t view_count; /* that are held */
};

static void batch_free(struct batch *batch)
{
    for (uint32_t i = 0; i < batch->view_count; i++) {
        PyBuffer_Release(&batch->views[i]);
    }
    sl_py_keys_release(&batch->keys);
    PyMem_Free(batch->names);
    PyMem_Free(batch->pieces);
    PyMem_Free(batch->views);
    PyMem_Free(batch);
}

static void ended_free(struct py_job *ended)
{
    while (ended != NULL) {
        struct py_job *next = ended->next;
        batch_free((struct batch *)ended);
        ended = next;
    }
}

/* ---- life ---- */

static void batches_end(PyObject *object)
{
    struct py_batches *self = (struct py_batches *)object;
    struct py_jobs *gone = self->jobs;
    struct py_client *client = self->client;
    self->jobs = NULL;
    self->client = NULL;
    if (sl_py_foreign(self)) { /* a child has none of the threads, and leaves the parent's alone */
        return;
    }
    if (gone != NULL) {
        struct py_job *left;
        PyThreadState *unlocked = PyEval_SaveThread();
        left = sl_py_jobs_destroy(&gone);
        PyEval_RestoreThread(unlocked);
        ended_free(left);
    }
    if (client != NULL) {
        sl_py_leave(client);
        Py_DECREF((PyObject *)client);
    }
}

static const struct py_kind batches_kind = {
    .closed = "the batches are closed",
    .foreign = "the batches were made before a fork: make others",
    .end = batches_end,
};

static void batches_dealloc(PyObject *object)
{
    batches_end(object); /* whoever used it held a reference */
    Py_CLEAR(((struct py_batches *)object)->prefix);
    sl_glue_free(object);
}

static bool prefix_take(struct py_state *state, PyObject *prefix, struct py_batches *self)
{
    struct sl_object_key key;
    if (prefix == NULL || (PyUnicode_Check(prefix) && PyUnicode_GetLength(prefix) == 0)) {
        return true;
    }
    if (!PyUnicode_Check(prefix)) {
        PyErr_SetString(PyExc_TypeError, "prefix: a str is needed");
        return false;
    }
    if (!sl_py_key(state, prefix, &key)) {
        return false;
    }
    self->prefix = Py_NewRef(prefix);
    self->prefix_at = key.at;
    self->prefix_bytes = key.length;
    return true;
}

/* The caller uses the client; on success the object does. */
static bool batches_open(struct py_batches *self, struct py_client *client, uint32_t threads,
                         uint32_t depth)
{
    struct sl_error why = {.code = SL_OK};
    sl_err err;
    PyThreadState *unlocked = PyEval_SaveThread();
    err = sl_py_jobs_create(client->client, threads, depth, &self->jobs, &why);
    PyEval_RestoreThread(unlocked);
    if (err != SL_OK) {
        sl_py_raise(sl_py_state((PyObject *)self), err, &why);
        return false;
    }
    self->client = (struct py_client *)Py_NewRef((PyObject *)client);
    sl_py_hold(client);
    return true;
}

static PyObject *batches_new(PyTypeObject *type, PyObject *args, PyObject *names)
{
    static char *words[] = {"client", "threads", "depth", "timeout", "prefix", NULL};
    struct py_state *state = PyType_GetModuleState(type);
    PyObject *of, *timeout = NULL, *prefix = NULL;
    uint32_t threads = THREADS_DEFAULT, depth = DEPTH_DEFAULT;
    uint64_t timeout_ns;
    if (!PyArg_ParseTupleAndKeywords(args, names, "O!|$O&O&OO:Batches", words, state->client, &of,
                                     sl_py_u32_into, &threads, sl_py_u32_into, &depth, &timeout,
                                     &prefix) ||
        !sl_py_timeout(timeout, &timeout_ns)) {
        return NULL;
    }
    struct py_client *client = (struct py_client *)of;
    struct py_batches *self = (struct py_batches *)sl_glue_new(type);
    if (self == NULL) {
        return NULL;
    }
    sl_py_begin(self, &batches_kind);
    self->timeout_ns = timeout_ns == 0 ? TIMEOUT_NS_DEFAULT : timeout_ns;
    bool fine = prefix_take(state, prefix, self) && sl_py_enter(client);
    if (fine) {
        fine = batches_open(self, client, threads, depth);
        sl_py_leave(client);
    }
    if (!fine) {
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

/* ---- names ---- */

/* Of all keys: the prefix, and the key or, of bytes in rows, its hexadecimal digits. Room for
 * each was counted before. */
static bool names_room(struct py_state *state, const struct py_batches *self, struct batch *batch,
                       uint64_t key_bytes, uint64_t longest)
{
    if (longest + self->prefix_bytes > SL_PY_KEY_BYTES_MAX) {
        sl_py_raise_text(state, SL_ERR_INVALID, "a key has 1024 bytes at most, with its prefix");
        return false;
    }
    uint64_t bytes = key_bytes + (uint64_t)batch->keys.count * self->prefix_bytes;
    batch->names = PyMem_Malloc((size_t)bytes + 1);
    if (batch->names == NULL) {
        PyErr_NoMemory();
        return false;
    }
    return true;
}

/* Puts the prefix before each key. */
static bool names_prefix(struct py_state *state, const struct py_batches *self, struct batch *batch)
{
    uint64_t bytes = 0, longest = 0;
    if (self->prefix_bytes == 0) {
        return true;
    }
    for (uint32_t i = 0; i < batch->keys.count; i++) {
        bytes += batch->keys.keys[i].length;
        longest = batch->keys.keys[i].length > longest ? batch->keys.keys[i].length : longest;
    }
    if (!names_room(state, self, batch, bytes, longest)) {
        return false;
    }
    char *to = batch->names;
    for (uint32_t i = 0; i < batch->keys.count; i++) {
        struct sl_object_key *key = &batch->keys.keys[i];
        memcpy(to, self->prefix_at, self->prefix_bytes);
        memcpy(to + self->prefix_bytes, key->at, key->length);
        *key = (struct sl_object_key){.at = to, .length = self->prefix_bytes + key->length};
        to += key->length;
    }
    return true;
}

/* Keys of any bytes. */
static bool names_hex(struct py_state *state, const struct py_batches *self, PyObject *sequence,
                      struct batch *batch)
{
    struct py_keys *keys = &batch->keys;
    uint64_t bytes = 0, longest = 0;
    keys->items = sl_py_items(state, sequence, SL_PY_BATCH_MAX, "keys");
    if (keys->items == NULL) {
        return false;
    }
    keys->count = (uint32_t)PyTuple_Size(keys->items);
    keys->keys = PyMem_Calloc((size_t)keys->count + 1, sizeof *keys->keys);
    keys->codes = PyMem_Calloc((size_t)keys->count + 1, sizeof *keys->codes);
    if (keys->keys == NULL || keys->codes == NULL) {
        PyErr_NoMemory();
        return false;
    }
    for (uint32_t i = 0; i < keys->count; i++) {
        PyObject *item = PyTuple_GetItem(keys->items, (Py_ssize_t)i);
        if (!PyBytes_Check(item) || PyBytes_Size(item) == 0) {
            PyErr_SetString(PyExc_TypeError, "keys of rows are bytes, one or more");
            return false;
        }
        uint64_t digits = 2 * (uint64_t)PyBytes_Size(item);
        bytes += digits;
        longest = digits > longest ? digits : longest;
    }
    if (!names_room(state, self, batch, bytes, longest)) {
        return false;
    }
    char *to = batch->names;
    for (uint32_t i = 0; i < keys->count; i++) {
        PyObject *item = PyTuple_GetItem(keys->items, (Py_ssize_t)i);
        char *end = to + self->prefix_bytes;
        if (self->prefix_bytes > 0) {
            memcpy(to, self->prefix_at, self->prefix_bytes);
        }
        size_t length = (size_t)PyBytes_Size(item);
        sl_hex_write(end, PyBytes_AsString(item), length);
        end += 2 * length;
        keys->keys[i] = (struct sl_object_key){.at = to, .length = (uint32_t)(end - to)};
        to = end;
    }
    return true;
}

/* ---- memory ---- */

static bool pieces_room(struct batch *batch, uint32_t view_count)
{
    batch->pieces = PyMem_Calloc((size_t)batch->keys.count + 1, sizeof *batch->pieces);
    batch->views = PyMem_Calloc((size_t)view_count + 1, sizeof *batch->views);
    if (batch->pieces == NULL || batch->views == NULL) {
        PyErr_NoMemory();
        return false;
    }
    return true;
}

static bool buffers_take(struct py_state *state, PyObject *sequence, int flags, struct batch *batch)
{
    PyObject *items = sl_py_items(state, sequence, SL_PY_BATCH_MAX, "buffers");
    if (items == NULL) {
        return false;
    }
    bool fine = PyTuple_Size(items) == (Py_ssize_t)batch->keys.count;
    if (!fine) {
        sl_py_raise_text(state, SL_ERR_INVALID, "a batch has as many buffers as keys");
    }
    fine = fine && pieces_room(batch, batch->keys.count);
    for (uint32_t i = 0; fine && i < batch->keys.count; i++) {
        Py_buffer *view = &batch->views[i];
        fine = PyObject_GetBuffer(PyTuple_GetItem(items, (Py_ssize_t)i), view, flags) == 0;
        if (fine) {
            batch->pieces[i] =
                (struct sl_piece){.at = view->buf, .length_bytes = (uint64_t)view->len};
            batch->view_count++;
        }
    }
    Py_DECREF(items);
    return fine;
}

/* Rows of one buffer of two dimensions: each key has that of its number. */
static bool rows_take(struct py_state *state, PyObject *memory, PyObject *numbers, int flags,
                      struct batch *batch)
{
    struct py_u32s rows = {.viewed = false};
    if (!pieces_room(batch, 1) ||
        PyObject_GetBuffer(memory, batch->views, flags | PyBUF_C_CONTIGUOUS) != 0) {
        return false;
    }
    batch->view_count = 1;
    const Py_buffer *view = batch->views;
    uint64_t row_count = view->ndim >= 2 ? (uint64_t)view->shape[0] : 0;
    uint64_t row_bytes = row_count == 0 ? 0 : (uint64_t)view->len / row_count;
    bool fine = sl_py_u32s_take(state, numbers, SL_PY_BATCH_MAX, "rows", &rows);
    if (fine && (row_bytes == 0 || rows.count != batch->keys.count)) {
        sl_py_raise_text(state, SL_ERR_INVALID,
                         "rows: memory of two dimensions and a row for each key are needed");
        fine = false;
    }
    for (uint32_t i = 0; fine && i < batch->keys.count; i++) {
        fine = rows.at[i] < row_count;
        if (!fine) {
            sl_py_raise_text(state, SL_ERR_INVALID, "rows: the memory has no such row");
            break;
        }
        batch->pieces[i] = (struct sl_piece){.at = (char *)view->buf + rows.at[i] * row_bytes,
                                             .length_bytes = row_bytes};
    }
    sl_py_u32s_release(&rows);
    return fine;
}

/* ---- submission ---- */

/* Takes the batch where all is fine. */
static PyObject *batch_submit(struct py_batches *self, struct batch *batch, bool fine,
                              enum py_job_kind kind, uint64_t timeout_ns)
{
    uint64_t id;
    if (!fine || !sl_py_enter(self)) {
        batch_free(batch);
        return NULL;
    }
    batch->job.kind = kind;
    batch->job.timeout_ns = timeout_ns == 0 ? self->timeout_ns : timeout_ns;
    batch->job.count = batch->keys.count;
    batch->job.keys = batch->keys.keys;
    batch->job.codes = batch->keys.codes;
    batch->job.pieces = batch->pieces;
    id = sl_py_jobs_submit(self->jobs, &batch->job);
    sl_py_leave(self);
    return PyLong_FromUnsignedLongLong(id);
}

static struct batch *batch_new(void)
{
    struct batch *batch = PyMem_Calloc(1, sizeof *batch);
    if (batch == NULL) {
        PyErr_NoMemory();
    }
    return batch;
}

static PyObject *copies_submit(PyObject *object, PyObject *args, PyObject *names,
                               const char *format, enum py_job_kind kind, int flags)
{
    static char *words[] = {"keys", "buffers", "timeout", NULL};
    struct py_batches *self = (struct py_batches *)object;
    struct py_state *state = sl_py_state(object);
    PyObject *sequence, *buffers, *timeout = NULL;
    uint64_t timeout_ns;
    struct batch *batch;
    if (!PyArg_ParseTupleAndKeywords(args, names, format, words, &sequence, &buffers, &timeout) ||
        !sl_py_timeout(timeout, &timeout_ns) || (batch = batch_new()) == NULL) {
        return NULL;
    }
    bool fine = sl_py_keys_take(state, sequence, &batch->keys) &&
                names_prefix(state, self, batch) && buffers_take(state, buffers, flags, batch);
    return batch_submit(self, batch, fine, kind, timeout_ns);
}

static PyObject *rows_submit(PyObject *object, PyObject *args, PyObject *names, const char *format,
                             enum py_job_kind kind, int flags)
{
    static char *words[] = {"keys", "memory", "rows", "timeout", NULL};
    struct py_batches *self = (struct py_batches *)object;
    struct py_state *state = sl_py_state(object);
    PyObject *sequence, *memory, *rows, *timeout = NULL;
    uint64_t timeout_ns;
    struct batch *batch;
    if (!PyArg_ParseTupleAndKeywords(args, names, format, words, &sequence, &memory, &rows,
                                     &timeout) ||
        !sl_py_timeout(timeout, &timeout_ns) || (batch = batch_new()) == NULL) {
        return NULL;
    }
    bool fine =
        names_hex(state, self, sequence, batch) && rows_take(state, memory, rows, flags, batch);
    return batch_submit(self, batch, fine, kind, timeout_ns);
}

static PyObject *names_submit(PyObject *object, PyObject *args, PyObject *names, const char *format,
                              enum py_job_kind kind)
{
    static char *words[] = {"keys", "timeout", NULL};
    struct py_batches *self = (struct py_batches *)object;
    struct py_state *state = sl_py_state(object);
    PyObject *sequence, *timeout = NULL;
    uint64_t timeout_ns;
    struct batch *batch;
    if (!PyArg_ParseTupleAndKeywords(args, names, format, words, &sequence, &timeout) ||
        !sl_py_timeout(timeout, &timeout_ns) || (batch = batch_new()) == NULL) {
        return NULL;
    }
    bool fine = sl_py_keys_take(state, sequence, &batch->keys) && names_prefix(state, self, batch);
    return batch_submit(self, batch, fine, kind, timeout_ns);
}

static PyObject *batches_put(PyObject *self, PyObject *args, PyObject *names)
{
    return copies_submit(self, args, names, "OO|$O:put", PY_JOB_PUT, PyBUF_SIMPLE);
}

static PyObject *batches_get(PyObject *self, PyObject *args, PyObject *names)
{
    return copies_submit(self, args, names, "OO|$O:get", PY_JOB_GET, PyBUF_WRITABLE);
}

static PyObject *batches_put_rows(PyObject *self, PyObject *args, PyObject *names)
{
    return rows_submit(self, args, names, "OOO|$O:put_rows", PY_JOB_PUT, 0);
}

static PyObject *batches_get_rows(PyObject *self, PyObject *args, PyObject *names)
{
    return rows_submit(self, args, names, "OOO|$O:get_rows", PY_JOB_GET, PyBUF_WRITABLE);
}

static PyObject *batches_exists(PyObject *self, PyObject *args, PyObject *names)
{
    return names_submit(self, args, names, "O|$O:exists", PY_JOB_LOOK);
}

static PyObject *batches_remove(PyObject *self, PyObject *args, PyObject *names)
{
    return names_submit(self, args, names, "O|$O:remove", PY_JOB_REMOVE);
}

/* ---- results ---- */

static PyObject *fine_list(const struct batch *batch)
{
    PyObject *list = PyList_New((Py_ssize_t)batch->keys.count);
    for (uint32_t i = 0; list != NULL && i < batch->keys.count; i++) {
        sl_glue_list_put(&list, i, PyBool_FromLong(batch->keys.codes[i] == SL_OK));
    }
    return list;
}

/* The first code that is a failure: to find nothing is an answer, but of a put. */
static sl_err batch_failure(const struct batch *batch)
{
    for (uint32_t i = 0; i < batch->keys.count; i++) {
        sl_err code = batch->keys.codes[i];
        if (code != SL_OK && (code != SL_ERR_NOT_FOUND || batch->job.kind == PY_JOB_PUT)) {
            return code;
        }
    }
    return SL_OK;
}

/* (id, ok, error, [bool]) */
static PyObject *result_of(const struct batch *batch)
{
    sl_err failure = batch_failure(batch);
    bool worded = batch->job.why.code == failure && batch->job.why.text[0] != '\0';
    const char *text = failure == SL_OK ? "" : worded ? batch->job.why.text : sl_err_text(failure);
    PyObject *fields[] = {PyLong_FromUnsignedLongLong(batch->job.id),
                          PyBool_FromLong(failure == SL_OK), sl_glue_text(text), fine_list(batch)};
    PyObject *tuple = PyTuple_New(4);
    for (Py_ssize_t i = 0; i < 4; i++) {
        if (tuple == NULL || fields[i] == NULL) {
            Py_XDECREF(fields[i]);
            Py_CLEAR(tuple);
        } else {
            (void)PyTuple_SetItem(tuple, i, fields[i]); /* takes it */
        }
    }
    return tuple;
}

static PyObject *batches_drain(PyObject *object, PyObject *none)
{
    struct py_batches *self = (struct py_batches *)object;
    (void)none;
    PyObject *list = PyList_New(0);
    if (list == NULL || !sl_py_enter(self)) {
        Py_XDECREF(list);
        return NULL;
    }
    struct py_job *ended = sl_py_jobs_drain(self->jobs);
    for (struct py_job *job = ended; list != NULL && job != NULL; job = job->next) {
        PyObject *result = result_of((struct batch *)job);
        if (result == NULL || PyList_Append(list, result) != 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(result);
    }
    ended_free(ended);
    sl_py_leave(self);
    return list;
}

static PyObject *batches_wait(PyObject *object, PyObject *args, PyObject *names)
{
    static char *words[] = {"timeout", NULL};
    struct py_batches *self = (struct py_batches *)object;
    PyObject *timeout = NULL;
    uint64_t timeout_ns;
    bool idle;
    if (!PyArg_ParseTupleAndKeywords(args, names, "|O:wait", words, &timeout) ||
        !sl_py_timeout(timeout, &timeout_ns) || !sl_py_enter(self)) {
        return NULL;
    }
    PyThreadState *unlocked = PyEval_SaveThread();
    idle = sl_py_jobs_wait(self->jobs, timeout_ns == 0 ? self->timeout_ns : timeout_ns);
    PyEval_RestoreThread(unlocked);
    sl_py_leave(self);
    return PyBool_FromLong(idle);
}

/* Here and now: a look does not go through the threads. */
static PyObject *batches_look(PyObject *object, PyObject *args, PyObject *names)
{
    static char *words[] = {"keys", "timeout", NULL};
    struct py_batches *self = (struct py_batches *)object;
    struct py_state *state = sl_py_state(object);
    PyObject *sequence, *timeout = NULL, *list = NULL;
    uint64_t timeout_ns;
    struct batch *batch;
    if (!PyArg_ParseTupleAndKeywords(args, names, "O|$O:look", words, &sequence, &timeout) ||
        !sl_py_timeout(timeout, &timeout_ns) || (batch = batch_new()) == NULL) {
        return NULL;
    }
    if (sl_py_keys_take(state, sequence, &batch->keys) && names_prefix(state, self, batch) &&
        sl_py_enter(self)) {
        struct sl_error why = {.code = SL_OK};
        PyThreadState *unlocked = PyEval_SaveThread();
        sl_py_look(self->client->client, batch->keys.keys, batch->keys.count, batch->keys.codes,
                   timeout_ns, &why);
        PyEval_RestoreThread(unlocked);
        sl_py_leave(self);
        list = fine_list(batch);
    }
    batch_free(batch);
    return list;
}

static PyObject *batches_event_fd(PyObject *object, PyObject *none)
{
    struct py_batches *self = (struct py_batches *)object;
    (void)none;
    if (!sl_py_enter(self)) {
        return NULL;
    }
    PyObject *fd = PyLong_FromLong(sl_py_jobs_fd(self->jobs));
    sl_py_leave(self);
    return fd;
}

static PyObject *batches_pending(PyObject *object, void *none)
{
    struct py_batches *self = (struct py_batches *)object;
    (void)none;
    if (!sl_py_enter(self)) {
        return NULL;
    }
    PyObject *pending = PyLong_FromUnsignedLong(sl_py_jobs_pending(self->jobs));
    sl_py_leave(self);
    return pending;
}

static PyObject *batches_has_peers(PyObject *object, void *none)
{
    struct py_batches *self = (struct py_batches *)object;
    (void)none;
    if (!sl_py_enter(self)) {
        return NULL;
    }
    PyObject *has = PyBool_FromLong(sl_client_has_peers(self->client->client));
    sl_py_leave(self);
    return has;
}

/* ---- the type ---- */

#define WORDS (METH_VARARGS | METH_KEYWORDS)
#define METHOD(name, function, how, doc)                        \
    {                                                           \
        name, (PyCFunction)(void (*)(void))(function), how, doc \
    }
static PyMethodDef batches_methods[] = {
    METHOD("put", batches_put, WORDS,
           "put(keys, buffers, *, timeout=None)\n--\n\nStores each buffer; a key that exists is "
           "success. The number of the job. The buffers are used until the job was drained."),
    METHOD("get", batches_get, WORDS,
           "get(keys, buffers, *, timeout=None)\n--\n\nReads each value into its buffer. A value "
           "of another size is a failure, and the buffer then holds anything."),
    METHOD("put_rows", batches_put_rows, WORDS,
           "put_rows(keys, memory, rows, *, timeout=None)\n--\n\nAs put, of rows of memory with "
           "two dimensions. Keys are any bytes; their hexadecimal digits are stored."),
    METHOD("get_rows", batches_get_rows, WORDS,
           "get_rows(keys, memory, rows, *, timeout=None)\n--\n\nAs get, into rows of memory."),
    METHOD("exists", batches_exists, WORDS,
           "exists(keys, *, timeout=None)\n--\n\nWhether this node or a peer has each."),
    METHOD("remove", batches_remove, WORDS,
           "remove(keys, *, timeout=None)\n--\n\nRemoves each from this node."),
    METHOD("look", batches_look, WORDS,
           "look(keys, *, timeout=None)\n--\n\nAs exists, at once: a list of bools. Without peers "
           "it waits for nobody. What is not known is False."),
    METHOD(
        "drain", batches_drain, METH_NOARGS,
        "drain()\n--\n\n(number, ok, error, [bool for each key]) of each job that has ended. ok: "
        "nothing failed; to find nothing is no failure."),
    METHOD("wait", batches_wait, WORDS,
           "wait(timeout=None)\n--\n\nWaits until no job waits or runs. False: not within the "
           "timeout (None: that of jobs)."),
    METHOD("event_fd", batches_event_fd, METH_NOARGS,
           "event_fd()\n--\n\nAn eventfd, readable while jobs have ended that were not drained."),
    METHOD("close", sl_py_close, METH_NOARGS,
           "Jobs that wait are cancelled, those that run end first. Nothing is drained any more."),
    METHOD("__enter__", sl_py_with, METH_NOARGS, NULL),
    METHOD("__exit__", sl_py_exit, METH_VARARGS, NULL),
    {NULL, NULL, 0, NULL},
};
static PyGetSetDef batches_attributes[] = {
    {"closed", sl_py_closed, NULL, "Whether close() was called.", NULL},
    {"pending", batches_pending, NULL, "Jobs that wait or run.", NULL},
    {"has_peers", batches_has_peers, NULL, "Whether there may be other nodes.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyType_Slot batches_slots[] = {
    {Py_tp_doc,
     "Batches(client, *, threads=3, depth=1024, timeout=10, prefix='')\n--\n\nMany objects in one "
     "job, in the background: submitting never waits, and each job ends by its timeout. With more "
     "than depth jobs at work a further one ends at once as failed. prefix goes before each key."},
    {Py_tp_new, (void *)batches_new},
    {Py_tp_dealloc, (void *)batches_dealloc},
    {Py_tp_methods, batches_methods},
    {Py_tp_getset, batches_attributes},
    {0, NULL},
};
PyType_Spec sl_py_batches_spec = {
    .name = "sluice.Batches",
    .basicsize = sizeof(struct py_batches),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = batches_slots,
};
