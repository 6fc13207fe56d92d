/* client/python/internal.h - what the files of the Python module share.
 *
 * One rule for all objects: whatever needs libsluice's object is a use of it. close() refuses new
 * uses at once; the object itself goes with its last use, so nothing that was handed out ever
 * dangles. Uses are counted under the interpreter's lock (GIL). */
#ifndef SL_CLIENT_PYTHON_INTERNAL_H
#define SL_CLIENT_PYTHON_INTERNAL_H

#include "client/lib/sluice.h"
#include "client/python/glue/glue.h"

#define SL_PY_BATCH_MAX     65536
#define SL_PY_KEY_BYTES_MAX 1024

/* References and nothing else: the module walks over them. */
struct py_state {
    PyTypeObject *client, *view, *engine, *memory, *op, *pool, *pool_info, *batches;
    PyTypeObject *object_info, *story, *node_info, *cluster_info, *op_result;
    PyObject *error;                /* SluiceError */
    PyObject *errors[SL_ERR_COUNT]; /* its subclass for each code; [0] is NULL */
};

/* Of an object that ends when it is closed and nobody uses it; the first of its struct. */
struct py_life {
    PyObject_HEAD const struct py_kind *kind;
    Py_ssize_t uses; /* calls under way, and objects that need it */
    unsigned forks;  /* of this process and its ancestors when it began */
    bool open;
};
struct py_client {
    struct py_life life; /* used by views, engines and pools */
    struct sl_client *client;
};
struct py_engine {
    struct py_life life;      /* used by ops and memories */
    struct py_client *client; /* a use of it */
    struct sl_engine *engine;
    PyObject *name, *pool_names; /* a tuple */
    PyObject *lent;              /* a list of DevicePools, a use of each */
    uint64_t *memory_bytes;      /* of each pool */
    uint32_t world, pool_count;
};

struct py_op {
    struct py_life life;
    struct py_engine *engine; /* a use of it, until released */
    struct sl_op *op;
    bool starting; /* it has no life yet, though it may have ended */
};

/* ---- module.c ---- */
/* The state of the module that the object's type comes from. No type may be subclassed, so there is
 * no other. */
struct py_state *sl_py_state(PyObject *object);
/* Raises the exception of the code; NULL. */
PyObject *sl_py_raise(struct py_state *state, sl_err code, const struct sl_error *why);
PyObject *sl_py_raise_text(struct py_state *state, sl_err code, const char *text);
/* Raises what is returned with the result of the op. */
PyObject *sl_py_raise_result(struct py_state *state, const struct sl_op_result *from,
                             PyObject *result);
/* How often this process, or one that it comes from, was forked off. */
unsigned sl_py_forks(void);

/* ---- life.c: of objects that begin with a struct py_life ---- */
struct py_kind {
    const char *closed, *foreign; /* what is raised when it is used closed, or after a fork */
    void (*end)(PyObject *object);
};
void sl_py_begin(void *object, const struct py_kind *kind);
bool sl_py_enter(void *object); /* a use; false with an exception */
void sl_py_hold(void *object);  /* another use beside one that is there */
void sl_py_leave(void *object);
/* Whether the process was forked off since: libsluice's objects are then left alone. */
bool sl_py_foreign(const void *object);
/* Methods and an attribute. */
PyObject *sl_py_close(PyObject *object, PyObject *none);
PyObject *sl_py_with(PyObject *object, PyObject *none);
PyObject *sl_py_exit(PyObject *object, PyObject *args);
PyObject *sl_py_closed(PyObject *object, void *none);

/* ---- convert.c: false or NULL with an exception ---- */
/* Seconds; None is 0 (the default of the call), 0 the shortest there is. */
bool sl_py_timeout(PyObject *seconds, uint64_t *ns);
/* Seconds; None and 0 are 0, and all else is more. */
bool sl_py_seconds(PyObject *seconds, uint64_t *ns);
/* str, or bytes in UTF-8; borrowed from the object. */
bool sl_py_key(struct py_state *state, PyObject *object, struct sl_object_key *key);
/* A sequence as a tuple of at most count_max; what names it in errors. */
PyObject *sl_py_items(struct py_state *state, PyObject *sequence, Py_ssize_t count_max,
                      const char *what);
bool sl_py_u32(PyObject *number, uint32_t *out);
/* For "O&" of PyArg_Parse...: ints into a uint64_t, a uint32_t. Its own "K" and "I" cut what does
 * not fit. */
int sl_py_u64_into(PyObject *number, void *out);
int sl_py_u32_into(PyObject *number, void *out);
/* A struct sequence. Takes each field, also on failure; one that is NULL is a failure. */
PyObject *sl_py_struct(PyTypeObject *type, PyObject *const *fields, Py_ssize_t count);
/* A list of ints from codes. */
PyObject *sl_py_codes(const sl_err *codes, Py_ssize_t count);

/* Keys of a batch; borrowed from items, which the batch holds. Zeroed before, released after, also
 * on failure. */
struct py_keys {
    PyObject *items;
    struct sl_object_key *keys;
    sl_err *codes;
    uint32_t count;
};
bool sl_py_keys_take(struct py_state *state, PyObject *sequence, struct py_keys *out);
void sl_py_keys_release(struct py_keys *keys);

/* 32-bit numbers: tokens or blocks. Either a buffer of unsigned 32-bit items, used in place, or
 * copied from a sequence. */
struct py_u32s {
    Py_buffer view;
    bool viewed;
    uint32_t *copied;
    const uint32_t *at;
    uint32_t count;
};
bool sl_py_u32s_take(struct py_state *state, PyObject *object, Py_ssize_t count_max,
                     const char *what, struct py_u32s *out);
void sl_py_u32s_release(struct py_u32s *numbers);

/* ---- layers.c: methods of the op, of the engine ---- */
PyObject *sl_py_op_layer_ready(PyObject *self, PyObject *layer);
PyObject *sl_py_op_layers_ready(PyObject *self, PyObject *layers);
PyObject *sl_py_op_layer_wait(PyObject *self, PyObject *args, PyObject *names);
PyObject *sl_py_op_number(PyObject *self, void *none);
PyObject *sl_py_layers_ready(PyObject *self, PyObject *args, PyObject *names);
PyObject *sl_py_layers_wait(PyObject *self, PyObject *args, PyObject *names);

/* ---- client.c ---- */
extern PyType_Spec sl_py_client_spec;
/* Gives bytes, of whatever size the value has; the caller uses the client. */
PyObject *sl_py_value_get(struct py_client *client, struct sl_object_key key, uint64_t timeout_ns);

/* ---- batch.c ---- */
PyObject *sl_py_put_batch(PyObject *self, PyObject *args, PyObject *names);
PyObject *sl_py_get_batch(PyObject *self, PyObject *args, PyObject *names);
PyObject *sl_py_get_batch_into(PyObject *self, PyObject *args, PyObject *names);
PyObject *sl_py_get_pinned_batch(PyObject *self, PyObject *args, PyObject *names);
PyObject *sl_py_exists_batch(PyObject *self, PyObject *args, PyObject *names);
PyObject *sl_py_remove_batch(PyObject *self, PyObject *args, PyObject *names);
PyObject *sl_py_prefetch(PyObject *self, PyObject *args, PyObject *names);

/* ---- addresses.c: methods of the client ---- */
PyObject *sl_py_put_pages(PyObject *self, PyObject *args, PyObject *names);
PyObject *sl_py_get_pages(PyObject *self, PyObject *args, PyObject *names);
PyObject *sl_py_find_pages(PyObject *self, PyObject *args, PyObject *names);
PyObject *sl_py_register_memory(PyObject *self, PyObject *args);
PyObject *sl_py_unregister_memory(PyObject *self, PyObject *args);

/* ---- batches.c ---- */
extern PyType_Spec sl_py_batches_spec;

/* ---- blocks.c: methods of the engine, of the module, of the client ---- */
PyObject *sl_py_look_blocks(PyObject *self, PyObject *args, PyObject *names);
PyObject *sl_py_look_there(PyObject *self, PyObject *args, PyObject *names);
PyObject *sl_py_look_prefix(PyObject *module, PyObject *args);
PyObject *sl_py_event_fd(PyObject *self, PyObject *none);
/* op.c: a method of the client */
PyObject *sl_py_ended_ops(PyObject *self, PyObject *none);

/* ---- rules.c: functions of the module; methods of the client ---- */
PyObject *sl_py_store_config(PyObject *module, PyObject *args, PyObject *names);
PyObject *sl_py_pool_creator(PyObject *module, PyObject *args, PyObject *names);
PyObject *sl_py_required_bytes(PyObject *module, PyObject *buffers);
PyObject *sl_py_contribute(PyObject *self, PyObject *args, PyObject *names);
PyObject *sl_py_withdraw(PyObject *self, PyObject *args, PyObject *names);

/* ---- hints.c ---- */
/* Of a dict (session, priority, keep); NULL, None: nothing is said. False: an exception is set. */
bool sl_py_hints_take(PyObject *hints, struct sl_hints *out);
PyObject *sl_py_session_pause(PyObject *self, PyObject *args, PyObject *names); /* of the client */
PyObject *sl_py_hint(PyObject *self, PyObject *args, PyObject *names);          /* of the client */

/* ---- hashes.c: keys of the engine, and its tables of blocks ---- */
#define SL_PY_POOLS_MAX 8
struct py_hashes {
    const unsigned char *at; /* hash_bytes each */
    uint32_t hash_bytes, count;
    Py_buffer view;
    bool viewed;
    unsigned char *copied;
};
/* Of one run of bytes, or of a sequence of bytes of one length. hash_bytes may be NULL. Releases
 * nothing: sl_py_hashes_release does, also after a failure. */
bool sl_py_hashes_take(struct py_state *state, PyObject *object, PyObject *hash_bytes,
                       struct py_hashes *out);
void sl_py_hashes_release(struct py_hashes *hashes);
struct py_tables {
    struct py_u32s each[SL_PY_POOLS_MAX];
    const uint32_t *at[SL_PY_POOLS_MAX]; /* of pools */
    uint32_t count;                      /* to be released */
    bool pools;                          /* one a pool; else one for all */
};
/* Of one table of blocks, or of a sequence of them, one a pool. Released likewise. */
bool sl_py_tables_take(struct py_state *state, PyObject *object, struct py_tables *out);
void sl_py_tables_release(struct py_tables *tables);
PyObject *sl_py_team_number(PyObject *module, PyObject *name);
PyObject *sl_py_set_origin(PyObject *module, PyObject *args, PyObject *names);

/* ---- look.c ---- */
PyObject *sl_py_exists(PyObject *self, PyObject *key);
PyObject *sl_py_size(PyObject *self, PyObject *key);
PyObject *sl_py_stat(PyObject *self, PyObject *key);
PyObject *sl_py_list(PyObject *self, PyObject *args, PyObject *names);
PyObject *sl_py_explain(PyObject *self, PyObject *args, PyObject *names);
PyObject *sl_py_nodes(PyObject *self, PyObject *args, PyObject *names);
extern PyStructSequence_Desc sl_py_object_info_desc, sl_py_story_desc, sl_py_node_info_desc,
    sl_py_cluster_info_desc;

/* ---- view.c ---- */
extern PyType_Spec sl_py_view_spec;
/* Takes view, also on failure; another use of the client, which the caller uses. */
PyObject *sl_py_view_new(struct py_state *state, struct py_client *client, struct sl_view *view);

/* ---- engine.c ---- */
extern PyType_Spec sl_py_engine_spec, sl_py_memory_spec;
PyObject *sl_py_engine_register(PyObject *self, PyObject *args,
                                PyObject *names); /* a method of the client */

/* ---- pool.c ---- */
extern PyType_Spec sl_py_pool_spec;
extern PyStructSequence_Desc sl_py_pool_info_desc;
/* methods of the client */
PyObject *sl_py_pool_create(PyObject *self, PyObject *args, PyObject *names);
PyObject *sl_py_pool_await(PyObject *self, PyObject *args, PyObject *names);
PyObject *sl_py_pool_acquire(PyObject *self, PyObject *args, PyObject *names);
PyObject *sl_py_pools(PyObject *self, PyObject *args, PyObject *names);
/* A use of the pool, for an engine; NULL with an exception. */
const struct sl_pool *sl_py_pool_lend(struct py_state *state, PyObject *pool);
void sl_py_pool_return(PyObject *pool);

/* ---- op.c ---- */
extern PyType_Spec sl_py_op_spec;
extern PyStructSequence_Desc sl_py_op_result_desc;
/* methods of the engine */
PyObject *sl_py_store(PyObject *self, PyObject *args, PyObject *names);
PyObject *sl_py_load(PyObject *self, PyObject *args, PyObject *names);
PyObject *sl_py_send(PyObject *self, PyObject *args, PyObject *names);
PyObject *sl_py_receive(PyObject *self, PyObject *args, PyObject *names);

/* ---- handover.c ---- */
/* Copies a receipt or a ticket, which are plain data and to Python bytes; what names it in errors.
 */
bool sl_py_plain_take(PyObject *object, void *out, size_t bytes, const char *what);
/* methods of the client */
PyObject *sl_py_handover_arrived(PyObject *self, PyObject *args, PyObject *names);
PyObject *sl_py_handover_end(PyObject *self, PyObject *args, PyObject *names);
/* of the module */
PyObject *sl_py_handover_mode(PyObject *module, PyObject *none);

#endif
