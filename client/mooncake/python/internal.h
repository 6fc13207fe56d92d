/* client/mooncake/python/internal.h - what the files of the module mooncake.store share.
 *
 * Arguments of a method are a table: their names, kinds and defaults. From it come the conversion,
 * which holds everything that the call borrows while the interpreter's lock (GIL) is released, and
 * the TypeError, which names the signature. */
#ifndef SL_CLIENT_MOONCAKE_PYTHON_INTERNAL_H
#define SL_CLIENT_MOONCAKE_PYTHON_INTERNAL_H

#include "client/mooncake/store/sl_store.h"
#include "client/python/glue/glue.h"

#define MC_ARGUMENTS_MAX 8

/* References and nothing else: the module walks over them. */
struct mc_state {
    PyTypeObject *store, *config, *buffer, *allocator;
    PyTypeObject *replica, *memory_descriptor, *disk_descriptor, *descriptor;
    PyObject *soft_pin_action, *data_type, *replica_status; /* enum classes */
    PyObject *replica_complete;                             /* ReplicaStatus.COMPLETE */
};
struct mc_store {
    PyObject_HEAD struct sl_store *store;
};

/* ---- arguments.c ---- */

enum mc_kind {
    MC_KEY,     /* str: its UTF-8; bytes: themselves; borrowed */
    MC_TEXT,    /* str without NUL */
    MC_NUMBER,  /* unsigned int */
    MC_FLAG,    /* bool */
    MC_VALUE,   /* any buffer */
    MC_CONFIG,  /* ReplicateConfig */
    MC_KEYS,    /* list of str or bytes */
    MC_NUMBERS, /* list of unsigned ints */
    MC_LISTS,   /* list of those */
    MC_VALUES,  /* list of buffers */
    MC_OBJECT,  /* looked at by the method */
};
struct mc_argument {
    const char *name;
    enum mc_kind kind;
    const char *otherwise; /* the default as the signature says it; NULL: it must be given */
};
struct mc_call {
    const char *name, *result;
    struct mc_argument arguments[MC_ARGUMENTS_MAX]; /* up to a NULL name */
};
struct mc_keys {
    PyObject *held; /* the strings, also when another thread changes the caller's list */
    struct sl_object_key *at;
    uint32_t count;
};
struct mc_numbers {
    uint64_t *at;
    uint32_t count;
};
struct mc_lists {
    uint64_t *at;     /* one list behind the other */
    uint32_t *counts; /* of each list */
    uint32_t count;
    size_t total;
};
struct mc_view {
    Py_buffer view;
    void *copy; /* of what was not contiguous */
    bool held;
};
struct mc_views {
    struct mc_view *at;
    uint32_t count;
};
/* ReplicateConfig as it was when the call began. */
struct mc_terms {
    struct sl_store_terms terms;
    PyObject *held_segments, *held_groups;
    const char **segments;
    struct sl_object_key *groups;
};
struct mc_value {
    PyObject *object; /* borrowed; NULL: not given */
    struct sl_object_key key;
    uint64_t number;
    bool flag;
    union {
        struct mc_keys keys;
        struct mc_numbers numbers;
        struct mc_lists lists;
        struct mc_view view;
        struct mc_views views;
        struct mc_terms terms;
    };
};
/* False with an exception: nothing is held then. */
bool mc_take(PyObject *self, const struct mc_call *call, PyObject *const *args, Py_ssize_t count,
             PyObject *names, struct mc_value *values);
void mc_release(const struct mc_call *call, struct mc_value *values);
/* TypeError that names the signature; keeps exceptions that are of another kind. NULL. */
PyObject *mc_mismatch(const struct mc_call *call, PyObject *names);

/* Conversions. False: an exception is set, or it is no such thing. */
bool mc_key_take(PyObject *object, struct sl_object_key *out);
bool mc_string_take(PyObject *object, struct sl_object_key *out); /* str alone */
bool mc_keys_take(PyObject *object, struct mc_keys *out);
void mc_keys_release(struct mc_keys *keys);
bool mc_view_take(PyObject *object, struct mc_view *out);
void mc_view_release(struct mc_view *view);
const void *mc_view_at(const struct mc_view *view);
bool mc_made(const void *at); /* not NULL; else MemoryError */
/* Gives a list that nobody else changes. */
PyObject *mc_list_take(PyObject *object);

/* Results. */
PyObject *mc_codes(const int *codes, uint32_t count);
/* A line on standard error, a few a minute at most; nothing where why is SL_OK. */
void mc_put_refused(const struct sl_error *why);
PyObject *mc_results(const int64_t *results, uint32_t count);
PyObject *mc_same(long code, uint32_t count); /* a list of count times the code */
/* A key as results say it: str, as Mooncake's are, also for bytes; those that are no UTF-8 as they
 * are. */
PyObject *mc_key_name(PyObject *key);

/* ---- module.c ---- */
struct mc_state *mc_state_of(PyObject *object);

/* ---- config.c ---- */
extern PyType_Spec mc_config_spec;
/* What the config says now. False with an exception, or no config. */
bool mc_terms_take(PyObject *config, struct mc_state *state, struct mc_terms *out);
void mc_terms_release(struct mc_terms *terms);

/* ---- store.c ---- */
extern PyType_Spec mc_store_spec;
#define MC_METHOD(name) \
    PyObject *name(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
struct sl_store *mc_store_of(PyObject *self);

/* ---- write.c ---- */
MC_METHOD(mc_put);
MC_METHOD(mc_put_parts);
MC_METHOD(mc_put_batch);
MC_METHOD(mc_put_from);
MC_METHOD(mc_put_from_with_metadata);
MC_METHOD(mc_batch_put_from);
MC_METHOD(mc_batch_put_from_multi_buffers);
MC_METHOD(mc_upsert);
MC_METHOD(mc_upsert_parts);
MC_METHOD(mc_upsert_batch);
MC_METHOD(mc_upsert_from);
MC_METHOD(mc_batch_upsert_from);
static inline void *mc_address(uint64_t number)
{
    return (void *)(uintptr_t)number;
}
/* Pieces of keys' lists of addresses and sizes (and offsets, or one behind the other). items and
 * pieces are freed with PyMem_Free. Lists that do not fit leave an item without pieces. */
struct mc_items {
    struct sl_pieces *items;
    struct sl_piece *pieces;
};
/* One piece for each key. */
bool mc_items_single(const struct mc_keys *keys, const struct mc_numbers *addrs,
                     const struct mc_numbers *sizes, struct mc_items *out);
bool mc_items_make(const struct mc_keys *keys, const struct mc_lists *addrs,
                   const struct mc_lists *sizes, const struct mc_lists *offsets,
                   struct mc_items *out);
void mc_items_release(struct mc_items *items);

/* ---- read.c ---- */
MC_METHOD(mc_get);
MC_METHOD(mc_get_batch);
MC_METHOD(mc_get_buffer);
MC_METHOD(mc_batch_get_buffer);
MC_METHOD(mc_get_into);
MC_METHOD(mc_batch_get_into);
MC_METHOD(mc_batch_get_into_multi_buffers);

/* ---- ranges.c ---- */
MC_METHOD(mc_get_into_ranges);

/* ---- session.c ---- */
MC_METHOD(mc_get_session_start);
MC_METHOD(mc_get_session_read);
MC_METHOD(mc_get_session_end);
MC_METHOD(mc_put_session_start);
MC_METHOD(mc_put_session_write);
MC_METHOD(mc_put_session_end);
MC_METHOD(mc_put_session_revoke);

/* ---- look.c ---- */
MC_METHOD(mc_is_exist);
MC_METHOD(mc_batch_is_exist);
MC_METHOD(mc_get_size);
MC_METHOD(mc_remove);
MC_METHOD(mc_batch_remove);
MC_METHOD(mc_remove_by_regex);
MC_METHOD(mc_remove_all);
MC_METHOD(mc_batch_replica_clear);
MC_METHOD(mc_get_replica_desc);
MC_METHOD(mc_batch_get_replica_desc);

/* ---- descriptor.c ---- */
extern PyType_Spec mc_replica_spec, mc_memory_descriptor_spec, mc_disk_descriptor_spec,
    mc_descriptor_spec;
PyObject *mc_replica_new(struct mc_state *state, const struct sl_store_replica *replica);

/* ---- buffer.c ---- */
extern PyType_Spec mc_buffer_spec;
/* Takes the buffer, also on failure. */
PyObject *mc_buffer_new(struct mc_state *state, struct sl_store_buffer *buffer);

/* ---- memory.c ---- */
extern PyType_Spec mc_allocator_spec;
extern PyMethodDef mc_module_methods[];
MC_METHOD(mc_register_buffer);
MC_METHOD(mc_unregister_buffer);
MC_METHOD(mc_alloc_from_mem_pool);
MC_METHOD(mc_mount_segment);
MC_METHOD(mc_unmount_segment);
MC_METHOD(mc_allocate_and_mount_segment);
MC_METHOD(mc_unmount_local_disk_segment);

#endif
