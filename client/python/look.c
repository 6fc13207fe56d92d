/* client/python/look.c - looking only: exists, stat, list, explain, nodes. */
#include "client/python/internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- results ---- */

static PyStructSequence_Field object_info_fields[] = {
    {"key", "str"},
    {"size", "bytes of the value"},
    {"in_memory", "whether memory has it"},
    {"on_disk", "whether the disk tier has it"},
    {"digest", "int of 128 bits: XXH3-128 over the XXH3-64s of its 16 KiB chunks"},
    {NULL, NULL},
};
PyStructSequence_Desc sl_py_object_info_desc = {"sluice.ObjectInfo", "An object of this node.",
                                                object_info_fields, 5};

static PyStructSequence_Field story_fields[] = {
    {"code", "0: it is there; BUSY: being written; NOT_FOUND"},
    {"ago", "seconds since it went; None: not known"},
    {"text", "why"},
    {NULL, NULL},
};
PyStructSequence_Desc sl_py_story_desc = {"sluice.Story", "Why a key is a miss.", story_fields, 3};

static PyStructSequence_Field node_info_fields[] = {
    {"name", NULL},
    {"address", "where it is asked; '': it only asks us"},
    {"state", "alive, away, broken, or why it is no peer"},
    {"link", "where bytes go: up, connecting, down"},
    {"source", "who told of it: peers, directory"},
    {"incarnation", NULL},
    {"round_trip", "seconds"},
    {"heard_ago", "seconds"},
    {"read_bytes", NULL},
    {"read_values", NULL},
    {"failures", NULL},
    {"pinned_values", NULL},
    {NULL, NULL},
};
PyStructSequence_Desc sl_py_node_info_desc = {"sluice.NodeInfo", "Another node.", node_info_fields,
                                              12};

static PyStructSequence_Field cluster_info_fields[] = {
    {"name", "of this node; '': it has no peers"},
    {"listen", "where peers ask it; '': nowhere"},
    {"fabric", "what carries bytes"},
    {NULL, NULL},
};
PyStructSequence_Desc sl_py_cluster_info_desc = {"sluice.ClusterInfo", "This node among others.",
                                                 cluster_info_fields, 3};

static PyObject *digest_of(uint64_t low, uint64_t high)
{
    char text[40];
    (void)snprintf(text, sizeof text, "%016" PRIx64 "%016" PRIx64, high, low);
    return PyLong_FromString(text, NULL, 16);
}

static PyObject *object_info_of(struct py_state *state, const struct sl_object_info *info)
{
    PyObject *const fields[] = {
        sl_glue_text_of(info->key.at, info->key.length),
        PyLong_FromUnsignedLongLong(info->length_bytes),
        PyBool_FromLong(info->in_memory),
        PyBool_FromLong(info->on_disk),
        digest_of(info->digest_low, info->digest_high),
    };
    return sl_py_struct(state->object_info, fields, 5);
}

static PyObject *seconds_of(uint64_t ns)
{
    return PyFloat_FromDouble((double)ns / 1e9);
}

/* ---- one key ---- */

/* info: NULL: only whether it is there, and that is counted as a look-up. */
static bool look(PyObject *object, PyObject *name, sl_err *err, struct sl_object_info *info)
{
    struct py_client *self = (struct py_client *)object;
    struct sl_object_key key;
    if (!sl_py_key(sl_py_state(object), name, &key) || !sl_py_enter(self)) {
        return false;
    }
    PyThreadState *unlocked = PyEval_SaveThread();
    *err = info != NULL ? sl_stat(self->client, key, info) : sl_exists(self->client, key);
    PyEval_RestoreThread(unlocked);
    sl_py_leave(self);
    return true;
}

PyObject *sl_py_exists(PyObject *self, PyObject *key)
{
    sl_err err;
    if (!look(self, key, &err, NULL)) {
        return NULL;
    }
    return err == SL_OK || err == SL_ERR_NOT_FOUND ? PyBool_FromLong(err == SL_OK)
                                                   : sl_py_raise(sl_py_state(self), err, NULL);
}

PyObject *sl_py_size(PyObject *self, PyObject *key)
{
    struct sl_object_info info;
    sl_err err;
    if (!look(self, key, &err, &info)) {
        return NULL;
    }
    return err == SL_OK ? PyLong_FromUnsignedLongLong(info.length_bytes)
                        : sl_py_raise(sl_py_state(self), err, NULL);
}

PyObject *sl_py_stat(PyObject *self, PyObject *key)
{
    struct sl_object_info info;
    sl_err err;
    if (!look(self, key, &err, &info)) {
        return NULL;
    }
    return err == SL_OK ? object_info_of(sl_py_state(self), &info)
                        : sl_py_raise(sl_py_state(self), err, NULL);
}

/* ---- list ---- */

/* What is visible, gathered without the interpreter's lock: keys one after the other, and an entry
 * each. */
struct listing {
    struct sl_object_info *infos; /* key.at is not set yet */
    char *keys;
    uint64_t count, room, limit, key_bytes, key_room;
    bool no_memory;
};

static bool room_for(void **at, uint64_t *room, uint64_t wanted, size_t each_bytes)
{
    if (wanted <= *room) {
        return true;
    }
    uint64_t more = wanted * 2;
    void *grown = realloc(*at, more * each_bytes);
    if (grown == NULL) {
        return false;
    }
    *at = grown;
    *room = more;
    return true;
}

static bool listed(void *context, const struct sl_object_info *info)
{
    struct listing *listing = context;
    if (listing->count == listing->limit) {
        return false;
    }
    void *infos = listing->infos, *keys = listing->keys;
    bool fine = room_for(&infos, &listing->room, listing->count + 1, sizeof *listing->infos);
    fine = fine && room_for(&keys, &listing->key_room, listing->key_bytes + info->key.length, 1);
    listing->infos = infos;
    listing->keys = keys;
    listing->no_memory = !fine;
    if (!fine) {
        return false;
    }
    memcpy(listing->keys + listing->key_bytes, info->key.at, info->key.length);
    listing->key_bytes += info->key.length;
    listing->infos[listing->count++] = *info;
    return true;
}

static PyObject *listing_list(struct py_state *state, struct listing *listing)
{
    PyObject *list = PyList_New((Py_ssize_t)listing->count);
    const char *key = listing->keys;
    for (uint64_t i = 0; list != NULL && i < listing->count; i++) {
        listing->infos[i].key.at = key;
        key += listing->infos[i].key.length;
        sl_glue_list_put(&list, (Py_ssize_t)i, object_info_of(state, &listing->infos[i]));
    }
    return list;
}

PyObject *sl_py_list(PyObject *object, PyObject *args, PyObject *names)
{
    static char *words[] = {"prefix", "limit", NULL};
    struct py_client *self = (struct py_client *)object;
    struct py_state *state = sl_py_state(object);
    const char *prefix = "";
    PyObject *limit = NULL;
    struct listing listing = {.limit = UINT64_MAX};
    if (!PyArg_ParseTupleAndKeywords(args, names, "|s$O:list", words, &prefix, &limit) ||
        (limit != NULL && limit != Py_None && !sl_glue_u64(limit, &listing.limit)) ||
        !sl_py_enter(self)) {
        return NULL;
    }
    struct sl_error why = {.code = SL_OK};
    sl_err err;
    PyThreadState *unlocked = PyEval_SaveThread();
    err = sl_list(self->client, prefix, listed, &listing, &why);
    PyEval_RestoreThread(unlocked);
    sl_py_leave(self);
    PyObject *list = NULL;
    if (listing.no_memory) {
        PyErr_NoMemory();
    } else {
        list = err == SL_OK ? listing_list(state, &listing) : sl_py_raise(state, err, &why);
    }
    free(listing.infos);
    free(listing.keys);
    return list;
}

/* ---- explain, nodes ---- */

static PyObject *stories_list(struct py_state *state, const struct sl_story *stories,
                              uint32_t count)
{
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (uint32_t i = 0; list != NULL && i < count; i++) {
        PyObject *const fields[] = {
            PyLong_FromLong(stories[i].code),
            stories[i].ago_ns == 0 ? Py_NewRef(Py_None) : seconds_of(stories[i].ago_ns),
            sl_glue_text(stories[i].text),
        };
        sl_glue_list_put(&list, i, sl_py_struct(state->story, fields, 3));
    }
    return list;
}

PyObject *sl_py_explain(PyObject *object, PyObject *args, PyObject *names)
{
    static char *words[] = {"keys", "timeout", NULL};
    struct py_client *self = (struct py_client *)object;
    struct py_state *state = sl_py_state(object);
    PyObject *sequence, *timeout = NULL, *list = NULL;
    uint64_t timeout_ns;
    if (!PyArg_ParseTupleAndKeywords(args, names, "O|$O:explain", words, &sequence, &timeout) ||
        !sl_py_timeout(timeout, &timeout_ns)) {
        return NULL;
    }
    struct py_keys keys;
    struct sl_story stories[SL_EXPLAIN_KEYS_MAX];
    if (sl_py_keys_take(state, sequence, &keys)) {
        if (keys.count > SL_EXPLAIN_KEYS_MAX) {
            sl_py_raise_text(state, SL_ERR_INVALID, "explain: at most 64 keys");
        } else if (sl_py_enter(self)) {
            struct sl_error why = {.code = SL_OK};
            sl_err err;
            PyThreadState *unlocked = PyEval_SaveThread();
            err = sl_explain(self->client, keys.keys, keys.count, stories, timeout_ns, &why);
            PyEval_RestoreThread(unlocked);
            sl_py_leave(self);
            list = err == SL_OK ? stories_list(state, stories, keys.count)
                                : sl_py_raise(state, err, &why);
        }
    }
    sl_py_keys_release(&keys);
    return list;
}

static PyObject *node_info_of(struct py_state *state, const struct sl_node_info *node)
{
    PyObject *const fields[] = {
        sl_glue_text(node->name),
        sl_glue_text(node->address),
        sl_glue_text(node->state),
        sl_glue_text(node->link),
        sl_glue_text(node->source),
        PyLong_FromUnsignedLongLong(node->incarnation),
        seconds_of(node->round_trip_ns),
        seconds_of(node->heard_ago_ns),
        PyLong_FromUnsignedLongLong(node->read_bytes),
        PyLong_FromUnsignedLongLong(node->read_values),
        PyLong_FromUnsignedLongLong(node->failures),
        PyLong_FromUnsignedLongLong(node->pinned_values),
    };
    return sl_py_struct(state->node_info, fields, 12);
}

static PyObject *nodes_tuple(struct py_state *state, const struct sl_cluster_info *cluster,
                             const struct sl_node_info *nodes, uint32_t count)
{
    PyObject *const fields[] = {sl_glue_text(cluster->name), sl_glue_text(cluster->listen),
                                sl_glue_text(cluster->fabric)};
    PyObject *first = sl_py_struct(state->cluster_info, fields, 3);
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (uint32_t i = 0; list != NULL && i < count; i++) {
        sl_glue_list_put(&list, i, node_info_of(state, &nodes[i]));
    }
    PyObject *result = first == NULL || list == NULL ? NULL : PyTuple_Pack(2, first, list);
    Py_XDECREF(first);
    Py_XDECREF(list);
    return result;
}

PyObject *sl_py_nodes(PyObject *object, PyObject *args, PyObject *names)
{
    static char *words[] = {"timeout", NULL};
    struct py_client *self = (struct py_client *)object;
    struct py_state *state = sl_py_state(object);
    PyObject *timeout = NULL;
    uint64_t timeout_ns;
    if (!PyArg_ParseTupleAndKeywords(args, names, "|$O:nodes", words, &timeout) ||
        !sl_py_timeout(timeout, &timeout_ns) || !sl_py_enter(self)) {
        return NULL;
    }
    struct sl_cluster_info cluster;
    struct sl_node_info nodes[SL_NODES_MAX];
    uint32_t count = 0;
    struct sl_error why = {.code = SL_OK};
    sl_err err;
    PyThreadState *unlocked = PyEval_SaveThread();
    err = sl_nodes(self->client, &cluster, nodes, &count, timeout_ns, &why);
    PyEval_RestoreThread(unlocked);
    sl_py_leave(self);
    return err == SL_OK ? nodes_tuple(state, &cluster, nodes, count)
                        : sl_py_raise(state, err, &why);
}
