/* client/python/addresses.c - pages of an engine's memory by their addresses, one call a batch.
 *
 * An engine names pages by hashes and by indices of its pool. Of a page one value a suffix is
 * stored, and a value is pieces of the pool, which lie in each page alike. Keys and addresses are
 * made here, so that a call of a thousand pages makes no object of Python a page. */
#include "client/python/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PIECES_MAX (UINT32_C(1) << 20) /* of a call; 24 bytes each */

/* ---- arrays of 64-bit numbers, used in place ---- */

struct u64s {
    Py_buffer view;
    const uint64_t *at;
    uint32_t count;
};

static bool u64s_take(struct py_state *state, PyObject *object, const char *what, struct u64s *out)
{
    *out = (struct u64s){.count = 0};
    if (object == NULL || object == Py_None) {
        return true;
    }
    if (PyObject_GetBuffer(object, &out->view, PyBUF_ND | PyBUF_FORMAT) != 0) {
        return false;
    }
    const char *format = out->view.format == NULL ? "" : out->view.format;
    const size_t length = strlen(format);
    const Py_ssize_t count = out->view.len / (Py_ssize_t)sizeof(uint64_t);
    if (out->view.itemsize != sizeof(uint64_t) || length == 0 ||
        strchr("QLql", format[length - 1]) == NULL || count > UINT32_MAX ||
        (count > 0 && (uintptr_t)out->view.buf % _Alignof(uint64_t) != 0)) {
        char text[96];
        PyBuffer_Release(&out->view);
        *out = (struct u64s){.count = 0};
        (void)snprintf(text, sizeof text, "%s: an array of 64-bit numbers is needed", what);
        sl_py_raise_text(state, SL_ERR_INVALID, text);
        return false;
    }
    out->at = out->view.buf;
    out->count = (uint32_t)count;
    return true;
}

static void u64s_release(struct u64s *numbers)
{
    PyBuffer_Release(&numbers->view); /* nothing where nothing was taken */
}

/* ---- keys: prefix, page, suffix ---- */

struct page_keys {
    PyObject *pages, *suffixes; /* tuples */
    char *text;
    struct sl_object_key *keys; /* [page_count][value_count] */
    sl_err *codes;
    uint32_t page_count, value_count; /* values of a page */
};

static void page_keys_release(struct page_keys *keys)
{
    Py_CLEAR(keys->pages);
    Py_CLEAR(keys->suffixes);
    PyMem_Free(keys->text);
    PyMem_Free(keys->keys);
    PyMem_Free(keys->codes);
}

struct text {
    const char *at;
    Py_ssize_t length;
};

static bool text_of(PyObject *object, struct text *out)
{
    out->at = PyUnicode_AsUTF8AndSize(object, &out->length); /* raises for what is no str */
    return out->at != NULL;
}

/* The UTF-8 of a tuple of str, borrowed from it; *bytes is the sum of lengths. */
static struct text *texts_of(PyObject *tuple, Py_ssize_t count, size_t *bytes)
{
    struct text *texts = PyMem_Calloc((size_t)count + 1, sizeof *texts);
    *bytes = 0;
    if (texts == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!text_of(PyTuple_GetItem(tuple, i), &texts[i])) {
            PyMem_Free(texts);
            return NULL;
        }
        *bytes += (size_t)texts[i].length;
    }
    return texts;
}

static bool compose(struct py_state *state, const struct text *prefix, const struct text *pages,
                    const struct text *suffixes, struct page_keys *out)
{
    char *at = out->text;
    struct sl_object_key *key = out->keys;
    for (uint32_t page = 0; page < out->page_count; page++) {
        for (uint32_t value = 0; value < out->value_count; value++) {
            const struct text *parts[] = {prefix, &pages[page], &suffixes[value]};
            key->at = at;
            for (size_t i = 0; i < SL_COUNT(parts); i++) {
                memcpy(at, parts[i]->at, (size_t)parts[i]->length);
                at += parts[i]->length;
            }
            const size_t length = (size_t)(at - key->at);
            if (length < 1 || length > SL_PY_KEY_BYTES_MAX || memchr(key->at, '\0', length)) {
                sl_py_raise_text(state, SL_ERR_INVALID,
                                 "a key has 1 to 1024 bytes in UTF-8 and no NUL");
                return false;
            }
            key->length = (uint32_t)length;
            key++;
        }
    }
    return true;
}

static bool page_keys_make(struct py_state *state, PyObject *prefix, struct page_keys *out)
{
    const size_t values = (size_t)out->page_count * out->value_count;
    struct text before = {.at = ""}, *pages = NULL, *suffixes = NULL;
    size_t page_bytes = 0, suffix_bytes = 0;
    bool fine = prefix == NULL || text_of(prefix, &before);
    pages = fine ? texts_of(out->pages, out->page_count, &page_bytes) : NULL;
    suffixes = pages != NULL ? texts_of(out->suffixes, out->value_count, &suffix_bytes) : NULL;
    fine = suffixes != NULL;
    if (fine) {
        out->text = PyMem_Malloc(values * (size_t)before.length + page_bytes * out->value_count +
                                 suffix_bytes * out->page_count + 1);
        out->keys = PyMem_Calloc(values + 1, sizeof *out->keys);
        out->codes = PyMem_Calloc(values + 1, sizeof *out->codes);
        fine = out->text != NULL && out->keys != NULL && out->codes != NULL;
        if (!fine) {
            PyErr_NoMemory();
        }
    }
    fine = fine && compose(state, &before, pages, suffixes, out);
    PyMem_Free(pages);
    PyMem_Free(suffixes);
    return fine;
}

/* suffixes NULL: one value a page, whose key has none. */
static bool page_keys_take(struct py_state *state, PyObject *pages, PyObject *prefix,
                           PyObject *suffixes, struct page_keys *out)
{
    *out = (struct page_keys){.pages = sl_py_items(state, pages, SL_PY_BATCH_MAX, "keys")};
    if (out->pages == NULL) {
        return false;
    }
    out->suffixes = suffixes == NULL ? Py_BuildValue("(s)", "")
                                     : sl_py_items(state, suffixes, SL_PY_BATCH_MAX, "suffixes");
    if (out->suffixes == NULL) {
        return false;
    }
    out->page_count = (uint32_t)PyTuple_Size(out->pages);
    out->value_count = (uint32_t)PyTuple_Size(out->suffixes);
    if (out->value_count == 0 || out->page_count > SL_PY_BATCH_MAX / out->value_count) {
        sl_py_raise_text(state, SL_ERR_INVALID,
                         "a batch has at most 65536 values, a page one or more");
        return false;
    }
    return page_keys_make(state, prefix, out);
}

/* A byte a page: 0, or the code of the first value that is not fine. */
static PyObject *page_codes(const struct page_keys *keys)
{
    PyObject *result = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)keys->page_count);
    if (result == NULL) {
        return NULL;
    }
    unsigned char *at = (unsigned char *)PyBytes_AsString(result);
    const sl_err *codes = keys->codes;
    for (uint32_t page = 0; page < keys->page_count; page++, codes += keys->value_count) {
        uint32_t i = 0;
        while (i + 1 < keys->value_count && codes[i] == SL_OK) {
            i++;
        }
        at[page] = (unsigned char)codes[i];
    }
    return result;
}

/* ---- pieces ---- */

struct call {
    struct page_keys keys;
    struct u64s indices;
    struct u64s addresses, strides, lengths, offsets, counts, steps; /* [values][pieces] */
    struct u64s sizes;                                               /* [values] */
    uint64_t page, limit;
    uint64_t timeout_ns;
    struct sl_pieces *values;
    struct sl_piece *pieces;
    uint64_t *wanted, *found; /* bytes of values: of one page's, of all */
};

static void call_release(struct call *call)
{
    struct u64s *all[] = {&call->indices, &call->addresses, &call->strides, &call->lengths,
                          &call->offsets, &call->counts,    &call->steps,   &call->sizes};
    for (size_t i = 0; i < SL_COUNT(all); i++) {
        u64s_release(all[i]);
    }
    PyMem_Free(call->values);
    PyMem_Free(call->pieces);
    PyMem_Free(call->wanted);
    PyMem_Free(call->found);
    page_keys_release(&call->keys);
}

static bool call_refuse(struct py_state *state, const char *text)
{
    sl_py_raise_text(state, SL_ERR_INVALID, text);
    return false;
}

/* Pages are runs of consecutive indices that begin at multiples of their length. */
static bool indices_fine(const struct call *call)
{
    const uint64_t *at = call->indices.at;
    for (uint32_t page = 0; page < call->keys.page_count; page++, at += call->page) {
        if (at[0] % call->page != 0 || at[0] >= call->limit || call->limit - at[0] < call->page) {
            return false;
        }
        for (uint64_t i = 1; i < call->page; i++) {
            if (at[i] != at[0] + i) {
                return false;
            }
        }
    }
    return true;
}

static bool shapes_fine(struct py_state *state, const struct call *call)
{
    const uint32_t pieces = call->lengths.count;
    const struct u64s *optional[] = {&call->offsets, &call->counts, &call->steps};
    if (call->page == 0 || call->indices.count / call->page != call->keys.page_count ||
        call->indices.count % call->page != 0) {
        return call_refuse(state, "a key needs as many indices as a page has");
    }
    if (pieces == 0 || pieces % call->keys.value_count != 0 || call->addresses.count != pieces ||
        call->strides.count != pieces ||
        (call->sizes.count != 0 && call->sizes.count != call->keys.value_count)) {
        return call_refuse(state, "addresses, strides and lengths: one a piece, each value has as "
                                  "many; sizes: one a value");
    }
    for (size_t i = 0; i < SL_COUNT(optional); i++) {
        if (optional[i]->count != 0 && optional[i]->count != pieces) {
            return call_refuse(state, "offsets, counts and steps: one a piece, or none");
        }
    }
    if (call->counts.count != call->steps.count) {
        return call_refuse(state, "counts come with steps");
    }
    return indices_fine(call) ||
           call_refuse(state, "a page is consecutive indices below the limit that begin at a "
                              "multiple of their number");
}

static uint64_t piece_count(const struct call *call, uint32_t piece)
{
    return call->counts.count == 0 ? 1 : call->counts.at[piece];
}

/* Of a page; 0: too many. */
static uint64_t pieces_of_page(const struct call *call)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < call->lengths.count; i++) {
        const uint64_t count = piece_count(call, i);
        if (count > PIECES_MAX || sum + count > PIECES_MAX) {
            return 0;
        }
        sum += count;
    }
    return sum;
}

/* The pieces of one value of one page from `out` on; gives how many, and the value's bytes. */
static uint32_t value_fill(const struct call *call, uint64_t page, uint32_t value,
                           struct sl_piece *out, uint64_t *bytes)
{
    const uint32_t each = call->lengths.count / call->keys.value_count;
    uint32_t filled = 0;
    uint64_t offset = 0;
    for (uint32_t i = value * each; i < (value + 1) * each; i++) {
        const uint64_t count = piece_count(call, i), length = call->lengths.at[i];
        uint64_t address = call->addresses.at[i] + page * call->strides.at[i];
        offset = call->offsets.count == 0 ? offset : call->offsets.at[i];
        for (uint64_t n = 0; n < count; n++) {
            out[filled++] = (struct sl_piece){
                .at = (void *)(uintptr_t)address, .length_bytes = length, .offset_bytes = offset};
            offset += length;
            address += call->steps.count == 0 ? 0 : call->steps.at[i];
        }
        *bytes += count * length;
    }
    return filled;
}

static void values_fill(struct call *call)
{
    struct sl_piece *next = call->pieces;
    uint64_t value = 0;
    for (uint32_t page = 0; page < call->keys.page_count; page++) {
        const uint64_t number = call->indices.at[page * call->page] / call->page;
        for (uint32_t i = 0; i < call->keys.value_count; i++, value++) {
            uint64_t bytes = 0;
            const uint32_t count = value_fill(call, number, i, next, &bytes);
            call->values[value] =
                (struct sl_pieces){.key = call->keys.keys[value], .at = next, .count = count};
            call->wanted[i] = call->sizes.count == 0 ? bytes : call->sizes.at[i];
            next += count;
        }
    }
}

static bool call_make(struct py_state *state, struct call *call)
{
    if (!shapes_fine(state, call)) {
        return false;
    }
    const size_t values = (size_t)call->keys.page_count * call->keys.value_count;
    const uint64_t pieces = pieces_of_page(call);
    if (call->keys.page_count > 0 && (pieces == 0 || pieces > PIECES_MAX / call->keys.page_count)) {
        return call_refuse(state, "a call has at most 1048576 pieces, and one or more");
    }
    call->pieces =
        PyMem_Malloc(((size_t)pieces * call->keys.page_count + 1) * sizeof *call->pieces);
    call->values = PyMem_Malloc((values + 1) * sizeof *call->values);
    call->wanted = PyMem_Malloc(((size_t)call->keys.value_count + 1) * sizeof *call->wanted);
    call->found = PyMem_Calloc(values + 1, sizeof *call->found);
    if (call->pieces == NULL || call->values == NULL || call->wanted == NULL ||
        call->found == NULL) {
        PyErr_NoMemory();
        return false;
    }
    values_fill(call);
    return true;
}

static bool call_take(PyObject *object, PyObject *args, PyObject *names, const char *format,
                      struct call *call)
{
    static char *words[] = {"keys",    "indices", "page",   "limit",    "addresses",
                            "strides", "lengths", "prefix", "suffixes", "offsets",
                            "counts",  "steps",   "sizes",  "timeout",  NULL};
    struct py_state *state = sl_py_state(object);
    PyObject *pages, *indices, *page, *limit, *addresses, *strides, *lengths;
    PyObject *prefix = NULL, *suffixes = NULL, *offsets = NULL, *counts = NULL, *steps = NULL;
    PyObject *sizes = NULL, *timeout = NULL;
    *call = (struct call){.page = 0};
    return PyArg_ParseTupleAndKeywords(args, names, format, words, &pages, &indices, &page, &limit,
                                       &addresses, &strides, &lengths, &prefix, &suffixes, &offsets,
                                       &counts, &steps, &sizes, &timeout) &&
           sl_py_timeout(timeout, &call->timeout_ns) && sl_glue_u64(page, &call->page) &&
           sl_glue_u64(limit, &call->limit) &&
           page_keys_take(state, pages, prefix, suffixes, &call->keys) &&
           u64s_take(state, indices, "indices", &call->indices) &&
           u64s_take(state, addresses, "addresses", &call->addresses) &&
           u64s_take(state, strides, "strides", &call->strides) &&
           u64s_take(state, lengths, "lengths", &call->lengths) &&
           u64s_take(state, offsets, "offsets", &call->offsets) &&
           u64s_take(state, counts, "counts", &call->counts) &&
           u64s_take(state, steps, "steps", &call->steps) &&
           u64s_take(state, sizes, "sizes", &call->sizes) && call_make(state, call);
}

/* What was read has to be the whole of what was wanted: a value of another size is another's. */
static void sizes_check(struct call *call)
{
    const uint32_t values = call->keys.page_count * call->keys.value_count;
    for (uint32_t i = 0; i < values; i++) {
        if (call->keys.codes[i] == SL_OK &&
            call->found[i] != call->wanted[i % call->keys.value_count]) {
            call->keys.codes[i] = SL_ERR_LIMIT;
        }
    }
}

static PyObject *pages_move(PyObject *object, PyObject *args, PyObject *names, const char *format,
                            bool put)
{
    struct py_client *self = (struct py_client *)object;
    PyObject *result = NULL;
    struct call call;
    if (call_take(object, args, names, format, &call) && sl_py_enter(self)) {
        const uint32_t count = call.keys.page_count * call.keys.value_count;
        struct sl_error why = {.code = SL_OK};
        sl_err err;
        PyThreadState *unlocked = PyEval_SaveThread();
        if (put) {
            err = sl_put_pieces(self->client, call.values, count, NULL, call.keys.codes,
                                call.timeout_ns, &why);
        } else {
            err = sl_get_pieces(self->client, call.values, count, false, call.found,
                                call.keys.codes, call.timeout_ns, &why);
            sizes_check(&call);
        }
        PyEval_RestoreThread(unlocked);
        sl_py_leave(self);
        result =
            err == SL_OK ? page_codes(&call.keys) : sl_py_raise(sl_py_state(object), err, &why);
    }
    call_release(&call);
    return result;
}

PyObject *sl_py_put_pages(PyObject *self, PyObject *args, PyObject *names)
{
    return pages_move(self, args, names, "OOOOOOO|$UOOOOOO:put_pages", true);
}

PyObject *sl_py_get_pages(PyObject *self, PyObject *args, PyObject *names)
{
    return pages_move(self, args, names, "OOOOOOO|$UOOOOOO:get_pages", false);
}

/* ---- whether they are there ---- */

/* Asks other nodes for what is not here. */
static sl_err pages_seek(struct sl_client *client, struct page_keys *keys, uint64_t timeout_ns,
                         struct sl_error *why)
{
    const uint32_t count = keys->page_count * keys->value_count;
    struct sl_object_key *asked = malloc((count + (size_t)1) * sizeof *asked);
    struct sl_elsewhere *answers = malloc((count + (size_t)1) * sizeof *answers);
    sl_err *codes = calloc(count + (size_t)1, sizeof *codes);
    uint32_t missing = 0;
    sl_err err = SL_OK;
    if (asked == NULL || answers == NULL || codes == NULL) {
        err = SL_ERR_NO_MEMORY;
        goto done;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (keys->codes[i] == SL_ERR_NOT_FOUND) {
            asked[missing++] = keys->keys[i];
        }
    }
    err = missing == 0 ? SL_OK
                       : sl_seek_batch(client, asked, missing, answers, codes, timeout_ns, why);
    for (uint32_t i = 0, n = 0; err == SL_OK && n < missing; i++) {
        if (keys->codes[i] == SL_ERR_NOT_FOUND) {
            keys->codes[i] = codes[n++];
        }
    }
done:
    free(asked);
    free(answers);
    free(codes);
    return err;
}

PyObject *sl_py_find_pages(PyObject *object, PyObject *args, PyObject *names)
{
    static char *words[] = {"keys", "prefix", "suffixes", "elsewhere", "timeout", NULL};
    struct py_client *self = (struct py_client *)object;
    struct py_state *state = sl_py_state(object);
    PyObject *pages, *prefix = NULL, *suffixes = NULL, *timeout = NULL, *result = NULL;
    int elsewhere = 0;
    uint64_t timeout_ns;
    if (!PyArg_ParseTupleAndKeywords(args, names, "O|$UOpO:find_pages", words, &pages, &prefix,
                                     &suffixes, &elsewhere, &timeout) ||
        !sl_py_timeout(timeout, &timeout_ns)) {
        return NULL;
    }
    struct page_keys keys;
    if (page_keys_take(state, pages, prefix, suffixes, &keys) && sl_py_enter(self)) {
        struct sl_error why = {.code = SL_OK};
        sl_err err;
        PyThreadState *unlocked = PyEval_SaveThread();
        err = sl_exists_batch(self->client, keys.keys, keys.page_count * keys.value_count,
                              keys.codes);
        if (err == SL_OK && elsewhere != 0 && sl_client_has_peers(self->client)) {
            err = pages_seek(self->client, &keys, timeout_ns, &why);
        }
        PyEval_RestoreThread(unlocked);
        sl_py_leave(self);
        result = err == SL_OK ? page_codes(&keys) : sl_py_raise(state, err, &why);
    }
    page_keys_release(&keys);
    return result;
}

/* ---- registered memory ---- */

static PyObject *memory_call(PyObject *object, PyObject *args, const char *format, bool taken)
{
    struct py_state *state = sl_py_state(object);
    PyObject *address, *length = NULL;
    uint64_t at, length_bytes = 0;
    if (!PyArg_ParseTuple(args, format, &address, &length) || !sl_glue_u64(address, &at) ||
        (length != NULL && !sl_glue_u64(length, &length_bytes))) {
        return NULL;
    }
    struct sl_error why = {.code = SL_OK};
    sl_err err = taken ? sl_memory_register((const void *)(uintptr_t)at, length_bytes, &why)
                       : sl_memory_unregister((const void *)(uintptr_t)at, &why);
    return err == SL_OK ? Py_NewRef(Py_None) : sl_py_raise(state, err, &why);
}

PyObject *sl_py_register_memory(PyObject *self, PyObject *args)
{
    return memory_call(self, args, "OO:register_memory", true);
}

PyObject *sl_py_unregister_memory(PyObject *self, PyObject *args)
{
    return memory_call(self, args, "O:unregister_memory", false);
}
