/* client/mooncake/python/ranges.c - get_into_ranges: buffers, their keys, the keys' fragments. */
#include "client/mooncake/python/internal.h"

#include <string.h>

static const struct mc_call ranges_call = {"get_into_ranges",
                                           "list[list[list[int]]]",
                                           {{"buffer_ptrs", MC_NUMBERS, NULL},
                                            {"all_keys", MC_OBJECT, NULL},
                                            {"all_dst_offsets", MC_OBJECT, NULL},
                                            {"all_src_offsets", MC_OBJECT, NULL},
                                            {"all_sizes", MC_OBJECT, NULL}}};

/* All ranges of a call, growing. Results have the shape of the targets' lists. */
struct ranges {
    struct sl_store_ranges *items;
    uint32_t count, room;
    struct sl_store_fragment *fragments;
    int64_t *results;
    size_t fragment_count, fragment_room;
    uint32_t *keys; /* of each buffer */
    PyObject *held; /* list of the keys */
};

static bool items_room(struct ranges *ranges)
{
    if (ranges->count < ranges->room) {
        return true;
    }
    uint32_t room = ranges->room == 0 ? 64 : ranges->room * 2;
    struct sl_store_ranges *items = PyMem_Realloc(ranges->items, room * sizeof *items);
    if (items == NULL) {
        PyErr_NoMemory();
        return false;
    }
    ranges->items = items;
    ranges->room = room;
    return true;
}

static bool fragments_room(struct ranges *ranges, size_t more)
{
    if (ranges->fragment_count + more <= ranges->fragment_room) {
        return true;
    }
    size_t room = (ranges->fragment_count + more) * 2;
    struct sl_store_fragment *fragments =
        PyMem_Realloc(ranges->fragments, room * sizeof *fragments);
    if (fragments == NULL) {
        PyErr_NoMemory();
        return false;
    }
    ranges->fragments = fragments;
    ranges->fragment_room = room;
    return true;
}

/* Item of a list, or NULL without an exception where there is none. */
static PyObject *item_of(PyObject *list, Py_ssize_t index)
{
    return list != NULL && index < PyList_Size(list) ? PyList_GetItem(list, index) : NULL;
}

static bool number_of(PyObject *list, Py_ssize_t index, uint64_t *out)
{
    PyObject *item = item_of(list, index);
    return item != NULL && sl_glue_u64(item, out);
}

/* One key's fragments. Lists of different lengths make it an item of which nothing is right: its
 * results say so. */
static bool key_add(struct ranges *ranges, uint64_t buffer, PyObject *key, PyObject *targets,
                    PyObject *sources, PyObject *sizes)
{
    Py_ssize_t count = PyList_Size(targets);
    bool fits = key != NULL && sources != NULL && sizes != NULL && PyList_Size(sources) == count &&
                PyList_Size(sizes) == count;
    struct sl_object_key name = {.at = "", .length = 0};
    if (count < 0 || count > INT32_MAX || !items_room(ranges) ||
        !fragments_room(ranges, (size_t)count) ||
        (key != NULL && (!mc_key_take(key, &name) || PyList_Append(ranges->held, key) != 0))) {
        return false;
    }
    struct sl_store_fragment *to = ranges->fragments + ranges->fragment_count;
    memset(to, 0, (size_t)count * sizeof *to);
    for (Py_ssize_t i = 0; fits && i < count; i++) {
        if (!number_of(targets, i, &to[i].target_bytes) ||
            !number_of(sources, i, &to[i].source_bytes) ||
            !number_of(sizes, i, &to[i].length_bytes)) {
            return false;
        }
    }
    ranges->items[ranges->count++] = (struct sl_store_ranges){
        .key = name, .buffer = fits ? (void *)(uintptr_t)buffer : NULL, .count = (uint32_t)count};
    ranges->fragment_count += (size_t)count;
    return true;
}

/* A list's list, taken; NULL where there is none. False with or without an exception: no list. */
static bool inner_take(PyObject *outer, Py_ssize_t index, PyObject **out)
{
    PyObject *item = item_of(outer, index);
    *out = item == NULL ? NULL : mc_list_take(item);
    return item == NULL || *out != NULL;
}

static bool buffer_key_add(struct ranges *ranges, uint64_t buffer, PyObject *const *lists,
                           Py_ssize_t index)
{
    PyObject *targets = NULL, *sources = NULL, *sizes = NULL;
    bool fine = inner_take(lists[1], index, &targets) && inner_take(lists[2], index, &sources) &&
                inner_take(lists[3], index, &sizes) && targets != NULL &&
                key_add(ranges, buffer, item_of(lists[0], index), targets, sources, sizes);
    Py_XDECREF(targets);
    Py_XDECREF(sources);
    Py_XDECREF(sizes);
    return fine;
}

/* lists: all_keys, all_dst_offsets, all_src_offsets, all_sizes, as lists. */
static bool buffer_add(struct ranges *ranges, uint64_t buffer, PyObject *const *lists,
                       Py_ssize_t index)
{
    PyObject *own[4] = {NULL};
    bool fine = true;
    for (int i = 0; fine && i < 4; i++) {
        fine = inner_take(lists[i], index, &own[i]);
    }
    Py_ssize_t keys = own[1] == NULL ? 0 : PyList_Size(own[1]);
    ranges->keys[index] = (uint32_t)keys;
    for (Py_ssize_t i = 0; fine && i < keys; i++) {
        fine = buffer_key_add(ranges, buffer, own, i);
    }
    for (int i = 0; i < 4; i++) {
        Py_XDECREF(own[i]);
    }
    return fine;
}

static bool ranges_take(struct ranges *ranges, const struct mc_numbers *buffers,
                        PyObject *const *lists)
{
    Py_ssize_t count = PyList_Size(lists[1]);
    ranges->held = PyList_New(0);
    ranges->keys = PyMem_Calloc((size_t)count + 1, sizeof *ranges->keys);
    bool fine = ranges->held != NULL && mc_made(ranges->keys);
    for (Py_ssize_t i = 0; fine && i < count; i++) {
        uint64_t buffer = i < (Py_ssize_t)buffers->count ? buffers->at[i] : 0;
        fine = buffer_add(ranges, buffer, lists, i);
    }
    ranges->results =
        fine ? PyMem_Malloc((ranges->fragment_count + 1) * sizeof *ranges->results) : NULL;
    if (fine && ranges->results == NULL) {
        PyErr_NoMemory();
        return false;
    }
    size_t at = 0;
    for (uint32_t i = 0; fine && i < ranges->count; i++) { /* where they came to lie */
        ranges->items[i].at = ranges->fragments + at;
        ranges->items[i].results = ranges->results + at;
        at += ranges->items[i].count;
    }
    return fine;
}

static void ranges_release(struct ranges *ranges)
{
    PyMem_Free(ranges->items);
    PyMem_Free(ranges->fragments);
    PyMem_Free(ranges->results);
    PyMem_Free(ranges->keys);
    Py_XDECREF(ranges->held);
}

/* Takes inner, also on failure. */
static bool append(PyObject *outer, PyObject *inner)
{
    bool fine = inner != NULL && PyList_Append(outer, inner) == 0;
    Py_XDECREF(inner);
    return fine;
}

/* As the targets' lists were nested, whoever changes them meanwhile. */
static PyObject *shaped(const struct ranges *ranges, Py_ssize_t buffers)
{
    PyObject *outer = PyList_New(0);
    const struct sl_store_ranges *item = ranges->items;
    for (Py_ssize_t i = 0; outer != NULL && i < buffers; i++) {
        PyObject *middle = PyList_New(0);
        for (uint32_t k = 0; middle != NULL && k < ranges->keys[i]; k++, item++) {
            if (!append(middle, mc_results(item->results, item->count))) {
                Py_CLEAR(middle);
            }
        }
        if (!append(outer, middle)) {
            Py_CLEAR(outer);
        }
    }
    return outer;
}

MC_METHOD(mc_get_into_ranges)
{
    struct mc_value values[MC_ARGUMENTS_MAX];
    if (!mc_take(self, &ranges_call, args, count, names, values)) {
        return NULL;
    }
    struct ranges ranges = {.items = NULL};
    struct sl_store *store = mc_store_of(self);
    PyObject *lists[4] = {NULL}, *result = NULL;
    bool fine = true;
    for (int i = 0; fine && i < 4; i++) {
        lists[i] = mc_list_take(values[1 + i].object);
        fine = lists[i] != NULL;
    }
    if (!fine || !ranges_take(&ranges, &values[0].numbers, lists)) {
        (void)mc_mismatch(&ranges_call, names);
    } else {
        PyThreadState *unlocked = PyEval_SaveThread();
        sl_store_read_ranges(store, ranges.items, ranges.count);
        PyEval_RestoreThread(unlocked);
        result = shaped(&ranges, PyList_Size(lists[1]));
    }
    ranges_release(&ranges);
    for (int i = 0; i < 4; i++) {
        Py_XDECREF(lists[i]);
    }
    mc_release(&ranges_call, values);
    return result;
}
