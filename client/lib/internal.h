/* client/lib/internal.h - shared by the files of libsluice. */
#ifndef SL_CLIENT_LIB_INTERNAL_H
#define SL_CLIENT_LIB_INTERNAL_H

#include "client/include/sluice.h"
#include "client/lib/readers.h"
#include "client/lib/turn.h"
#include "ipc/msg/sl_mailbox.h"
#include "ipc/msg/sl_msg.h"
#include "ipc/msg/sl_prealloc.h"
#include "ipc/shm/sl_counts.h"
#include "ipc/shm/sl_labels.h"
#include "ipc/shm/sl_leases.h"
#include "ipc/shm/sl_pins.h"
#include "ipc/shm/sl_seen.h"
#include "runtime/base/sl_clock.h"
#include "runtime/base/sl_config.h"
#include "runtime/base/sl_descriptors.h"
#include "runtime/base/sl_guard.h"
#include "runtime/base/sl_log.h"

#include <pthread.h>
#include <stdatomic.h>

#define SL_CLIENT_ARENAS_MAX 16u
/* The number of lives of the node whose memory one client may keep at a time: the current one, and
 * those for which it holds views or drafts. */
#define SL_CLIENT_ATTACHMENTS_MAX 64u
#define SL_CLIENT_CALLS_MAX       1024u
#define SL_CLIENT_OLD_LEASES_MAX  8u
#define SL_CLIENT_OLD_FIGURES_MAX 8u
/* Abandoned RESERVE requests that may still be answered: their grants are then returned. */
#define SL_CLIENT_GIVEN_UP_MAX 64u
#define SL_CLIENT_ORPHANS_MAX  65536u
#define SL_CLIENT_CANCEL_NS    (200 * SL_NS_PER_MS)
/* Limits of a put's terms, as in RESERVE. */
#define SL_TERMS_CONTRIBUTIONS_MAX 16u
#define SL_TERMS_NAME_BYTES_MAX    255u

/* Where this process counts, and the filter of keys; NULL: the node has none. */
struct sl_client_stats {
    struct sl_counts *counts;
    struct sl_labels *labels;
    struct sl_seen *seen;
};

/* The shared memory of one life of the node. Many threads read it without a lock, each in a section
 * of its own (readers.h) or with a hold. After it was replaced by a newer one it is unmapped when
 * no section can reach it, it has no holds, and none of its pins is taken. */
struct sl_attachment {
    struct sl_attachment *next; /* an older one; under the client's lock */
    struct sl_index_view *view;
    _Atomic(struct sl_arena *) arenas[SL_CLIENT_ARENAS_MAX]; /* attached on first use */
    struct sl_pins *pins;                                    /* NULL: read-only */
    _Atomic(struct sl_counts *) counts; /* these three as sl_client_stats; set and replaced */
    _Atomic(struct sl_labels *) labels; /* while the index stays the same */
    _Atomic(struct sl_seen *) seen;
    uint32_t number;        /* numbered from 0 within the client; never reused */
    _Atomic uint32_t holds; /* puts in progress, drafts, memory that a GPU may use indefinitely */
    uint64_t retired;       /* of sl_readers_retire; under the client's lock */
    _Atomic(struct sl_leases *) leases; /* NULL: not requested, or the node has none */
    struct sl_leases *old_leases[SL_CLIENT_OLD_LEASES_MAX]; /* replaced, under the client's lock */
    uint32_t old_leases_count;
    struct sl_client_stats old_figures[SL_CLIENT_OLD_FIGURES_MAX]; /* likewise */
    uint32_t old_figures_count;
    _Atomic uint64_t figures_again_ns; /* time of the next attempt; coarse */
    uint64_t figures_pause_ns;         /* under the client's lock; 0: the last attempt succeeded */
};

/* Memory that this client contributes to the node. */
struct sl_client_contribution {
    struct sl_client_contribution *next;
    char name[256];
    uint64_t length_bytes;
    bool lasting;
};

/* A request in flight. It borrows msg and all that msg refers to until it is done. */
struct sl_client_call {
    struct sl_client_call *next;
    const char *to;
    struct sl_msg msg;
    uint64_t deadline_ns;
    /* Called under the client's lock with a borrowed reply of code SL_OK, or with a useful body. */
    void (*answered)(void *context, const struct sl_msg *reply);
    void *context;
    /* state */
    uint64_t seq, began_ns, next_send_ns, retry_ns;
    bool ever_sent, silenced, done;
    bool unknown;      /* the registrar replied that it does not know us */
    bool sent_again;   /* if connections were opened since, two processes may have received it */
    uint64_t connects; /* number of connections opened when it was first sent */
    struct sl_op *op;  /* its end is reported once (ends.c); NULL: no op */
    sl_err code;
    struct sl_error why;
};

struct sl_client {
    struct sl_config *config;
    struct sl_paths paths;
    char instance[64];
    char name[SL_CLIENT_NAME_BYTES];
    struct sl_proc_id self; /* the node's name of this client: its pin file */
    /* One page that the kernel clears in a child: not 0 in the process that opened this client. */
    const volatile unsigned char *ours;
    bool read_only, leases, debugs; /* debugs: its log also has debug lines */
    bool has_tenant;
    _Atomic bool holds; /* lookups of blocks hold what they find */
    uint64_t op_timeout_ns, call_retry_ns, message_bytes_max;

    _Atomic(struct sl_attachment *) current;
    struct sl_turn contributing; /* a thread works on these two */
    struct sl_client_contribution *contributions;
    _Atomic uint64_t contribute_again_ns; /* some were refused: time of the next attempt */

    _Atomic bool any_old;        /* attachments wait to be unmapped */
    _Atomic uint64_t checked_ns; /* the last comparison of the node's files with the mapped ones */
    _Atomic uint64_t gone_ns;    /* files are missing since; 0: they exist */

    _Atomic uint32_t deferred_count; /* length of the list */

    pthread_mutex_t lock; /* guards all below */
    bool polling;         /* a thread waits for the descriptors without the lock, */
    const struct sl_client_call *polled_for; /* on behalf of this call, */
    uint64_t polled_until_ns;                /* until this time at most */
    int kick_fd;                             /* wakes it */
    struct sl_log *log;                      /* NULL until something is logged */
    struct sl_client_waiter *waiters;        /* threads that wait for the polling one */
    struct sl_attachment *attachments;       /* list, newest first */
    uint32_t attachment_count;               /* of the list */
    uint32_t next_number;                    /* of attachments */
    uint64_t greeted_generation;             /* boot generation of the registrar that knows us */
    _Atomic uint32_t greeted_attachment;     /* written under the lock, read also without it */
    struct sl_mailbox *mailbox;
    /* Receives replies that no call awaits; NULL: they are dropped. */
    void (*stray)(void *context, const char *from, const struct sl_msg *reply);
    void *stray_context;
    struct sl_codec *codec;
    struct sl_client_call *calls;
    uint32_t call_count;
    struct sl_client_call *ended_first, *ended_last; /* not reported yet; by next */
    struct sl_client_ends *ends;                     /* NULL: the descriptor was not requested */
    uint64_t next_seq, next_op_id;
    uint64_t given_up[SL_CLIENT_GIVEN_UP_MAX]; /* ring of the seqs of abandoned reserves */
    uint32_t given_up_next;
    struct sl_item_claim *orphans; /* grants that will not be filled: to be aborted */
    uint32_t orphan_count;
    struct sl_client_deferred *deferred; /* extents that a GPU may still access (deferred.h) */
    bool deferred_settling;              /* a thread checks which of them are free */
    struct sl_prealloc ahead;            /* extents granted in advance */
    uint64_t ahead_useful_ns;            /* grants are used up to this age */
    struct sl_pool *pools;               /* of this client */
    bool apart;                          /* the node cannot see our process by its pid */
    struct sl_descriptors *files;        /* serves memory of this process; NULL: not requested */
    char tenant[SL_LABEL_ID_BYTES];      /* written before other threads use the client */
    struct sl_label_place tenant_place;
};

/* ---- attach.c ---- */
/* Whether this process opened it; false in a fork. */
bool sl_client_is_ours(const struct sl_client *client);
/* Returns the current attachment, for a thread in a section, until the end of that section. */
struct sl_attachment *sl_client_attachment(const struct sl_client *client);
/* Returns the number of the current attachment; any thread. */
uint32_t sl_client_life(const struct sl_client *client);
/* Returns the current attachment with a hold, to be released with sl_attachment_release; any
 * thread. */
struct sl_attachment *sl_attachment_acquire(const struct sl_client *client);
/* Adds a hold to an attachment that is held or was found in this section. */
void sl_attachment_hold(struct sl_attachment *at);
void sl_attachment_release(struct sl_client *client, struct sl_attachment *at);
/* Unmaps old attachments that are no longer used. Not under the lock. */
void sl_client_sweep(struct sl_client *client);
/* Attaches again if the node's files are no longer the mapped ones. force: even if just checked. */
sl_err sl_client_reattach(struct sl_client *client, bool force, struct sl_error *why);
/* The same for readers, which continue with their memory while a node is replaced. Errors:
 * SL_ERR_UNREACHABLE (it was stopped, and its files are missing for half a second), SL_ERR_CORRUPT
 * (its memory was truncated, and there is no new one yet). */
sl_err sl_client_check_node(struct sl_client *client, struct sl_error *why);
/* False: the node is not usable, and all codes are set to the error. */
bool sl_client_check_node_batch(struct sl_client *client, sl_err *codes, uint32_t count,
                                struct sl_error *why);
/* Whether some of its memory may read as zeros that no process wrote (sl_guard.h). Check this after
 * each access to its bytes and before relying on them: a write may be lost, and the registrar may
 * not see a pin. */
bool sl_attachment_check_truncated(const struct sl_attachment *at);
static inline bool sl_attachment_is_cut(const struct sl_attachment *at)
{
    return __builtin_expect(sl_guard_cuts() != 0, 0) && sl_attachment_check_truncated(at);
}
/* The error of calls in that case: SL_ERR_CORRUPT. */
sl_err sl_client_fail_truncated(const struct sl_client *client, struct sl_error *why);
/* NULL: no such arena, or outside its bounds. */
void *sl_client_bytes(struct sl_client *client, struct sl_attachment *at, uint32_t arena,
                      uint64_t offset_bytes, uint64_t length_bytes);
/* Under the client's lock. NULL: it was unmapped. */
struct sl_attachment *sl_client_attachment_of(const struct sl_client *client, uint32_t number);
/* The arena in which the bytes are. */
const struct sl_arena *sl_client_arena(const struct sl_attachment *at, uint32_t arena);

/* The row in which the thread of this section counts its operations on this attachment. */
static inline struct sl_counts_row sl_client_counts(const struct sl_attachment *at,
                                                    const struct sl_reader *reader)
{
    return sl_counts_row_of(atomic_load_explicit(&at->counts, memory_order_acquire),
                            reader->number);
}

static inline struct sl_labels *sl_client_labels(const struct sl_attachment *at)
{
    return atomic_load_explicit(&at->labels, memory_order_acquire);
}

/* The row of the client's tenant; call it only if the client has one. */
static inline uint32_t sl_client_tenant_label(struct sl_client *client, struct sl_labels *labels)
{
    return sl_label_find(labels, SL_LABEL_TENANT, client->tenant, "", &client->tenant_place);
}

/* ---- leases.c ---- */
/* Maps the node's leases if the client wants them and they exist or were replaced. Under the
 * client's lock, or before other threads know the attachment. Errors: SL_ERR_VERSION (the leases
 * are of another build: looked-up keys would not be kept). Other failures are retried soon. */
sl_err sl_client_leases_follow(struct sl_client *client, struct sl_attachment *at,
                               struct sl_error *why);
void sl_client_leases_close(struct sl_attachment *at);
/* Makes the client's lookups of blocks hold what they find from now on. */
void sl_client_holds_begin(struct sl_client *client);
/* The leases used for that; NULL: the node has none. */
const struct sl_leases *sl_client_holds(const struct sl_attachment *at);
/* sl_index_find and sl_index_find_batch (entries may be NULL) that also lease what they find. */
sl_err sl_client_look(const struct sl_client *client, const struct sl_attachment *at,
                      struct sl_object_key key, struct sl_entry *entry);
void sl_client_look_batch(const struct sl_client *client, const struct sl_attachment *at,
                          const struct sl_key *keys, uint32_t count, struct sl_entry *entries,
                          sl_err *codes);
/* Whether the lease of this lookup has expired. */
bool sl_client_lease_over(const struct sl_entry *entry);

/* ---- get.c ---- */
/* A lookup that retries, attaches again and leases as needed. Errors: SL_ERR_INVALID,
 * SL_ERR_NOT_FOUND, SL_ERR_BUSY. */
sl_err sl_client_find(struct sl_client *client, struct sl_object_key key, struct sl_entry *entry);
/* For a lookup: replaces an invalid key by one under which nothing is found. */
void sl_client_keys_look(const struct sl_object_key *keys, uint32_t count, struct sl_key *out);

/* ---- call.c ---- */
uint64_t sl_client_deadline(const struct sl_client *client, uint64_t timeout_ns);
uint64_t sl_client_random(void);
uint64_t sl_client_op_id(struct sl_client *client);
sl_err sl_client_check_writable(const struct sl_client *client, struct sl_error *why);
/* Starts the call, which ends by its deadline. Errors: SL_ERR_LIMIT, those of encode. */
sl_err sl_client_call_start(struct sl_client *client, struct sl_client_call *call,
                            struct sl_error *why);
/* Waits until it is done or until_ns has passed. True: done. */
bool sl_client_call_wait(struct sl_client *client, struct sl_client_call *call, uint64_t until_ns);
/* Abandons a call that is not done. */
void sl_client_call_drop(struct sl_client *client, struct sl_client_call *call);
/* Starts a call and waits for it. Returns the reply's code, or the reason why there was none. */
sl_err sl_client_call(struct sl_client *client, struct sl_client_call *call, struct sl_error *why);
/* Sends once, without waiting for an answer. False: it could not be sent now. */
bool sl_client_send(struct sl_client *client, const char *to, struct sl_msg *msg,
                    uint64_t budget_ns);
/* Copies a text of a reply into a field of to_bytes, truncated if necessary, with a final NUL. */
void sl_client_text_take(char *to, size_t to_bytes, const struct sl_text *from);
/* Checks that these are at most SL_BATCH_MAX keys as messages allow them. what: subject of the
 * message. Errors: SL_ERR_INVALID. */
sl_err sl_client_keys_check(const char *what, const struct sl_object_key *keys, uint32_t count,
                            struct sl_error *why);
#define SL_KEY_FRAME_BYTES     8u    /* overhead of a key in a message */
#define SL_KEYS_ENVELOPE_BYTES 4096u /* overhead of a message of keys */
/* Returns how many of the keys (at least one) fit into one message, and fills texts (room for
 * count). */
uint32_t sl_client_keys_share(const struct sl_client *client, const struct sl_object_key *keys,
                              uint32_t count, struct sl_text *texts);
/* Sends HELLO to the registrar if it does not know us. */
sl_err sl_client_hello(struct sl_client *client, uint64_t deadline_ns, struct sl_error *why);
/* As sl_client_call, after making sure that the registrar knows us. */
sl_err sl_client_call_registrar(struct sl_client *client, struct sl_client_call *call,
                                struct sl_error *why);
void sl_client_orphan(struct sl_client *client, const struct sl_item_claim *claims, uint32_t count);
void sl_client_sleep(uint64_t ns);

/* Under the client's lock: receives what has arrived, resends what is due and ends what has
 * expired, without waiting. True: there may be more. */
bool sl_client_pump(struct sl_client *client);
/* Call this next, before unlocking: arms the mailbox again for threads that sleep. */
void sl_client_rearm_mailbox(struct sl_client *client);

/* ---- files.c ---- */
/* Serves descriptors of this process to the node from now on. Errors: of sl_descriptors_serve. */
sl_err sl_client_files_serve(struct sl_client *client, struct sl_error *why);

/* ---- ends.c: the descriptor for ended ops; all but the last under the client's lock ---- */
/* The call of an op ended: sl_client_ended will report it. */
void sl_client_ends_add(struct sl_client *client, struct sl_client_call *call);
/* It is no longer to be reported. */
void sl_client_ends_forget(struct sl_client *client, struct sl_client_call *call);
/* Makes the descriptor readable at due_ns; 0: now. */
void sl_client_ends_wake_at(struct sl_client *client, uint64_t due_ns);
void sl_client_ends_close(struct sl_client *client);

/* ---- memory.c ---- */
/* The kind of memory at [at, +length): as registered, otherwise as the driver reports it. *gpu: for
 * device memory. Any thread. */
enum sl_place sl_memory_place(const void *at, uint64_t length_bytes, int *gpu);
/* Adds memory of the allocator. Keeps a copy of the descriptor. */
sl_err sl_memory_ours_add(void *at, uint64_t length_bytes, int fd);
/* Returns a copy of the descriptor of memory that lies in one allocation; -1: it does not. */
int sl_memory_ours_fd(const void *at, uint64_t length_bytes, uint64_t *offset_bytes);
/* Gives its length. False: there is none at this address. */
bool sl_memory_ours_take(void *at, uint64_t *length_bytes);

/* ---- contribute.c ---- */
/* Repeats this client's contributions to a registrar that may not know them. Errors: those of calls
 * that are not answered. */
sl_err sl_client_contribute_again(struct sl_client *client, uint64_t deadline_ns,
                                  struct sl_error *why);
/* The client is about to be closed: withdraws contributions that do not last, if that is quick. */
void sl_client_contributions_end(struct sl_client *client);

/* ---- op.c ---- */
/* what: subject of the message. Errors: SL_ERR_INVALID. */
sl_err sl_client_hints_check(const char *what, const struct sl_hints *hints, struct sl_error *why);

/* ---- session.c ---- */
/* The hash of a session's name in messages; NULL: 0. */
uint64_t sl_client_session_id(const char *name);

/* ---- identity.c ---- */
void sl_model_identity(const struct sl_engine_options *options, char out[33]);
/* The identity's properties and the seed of the keys, for people. Not to be copied: items point
 * into it. */
struct sl_identity_facts {
    struct sl_item_fact items[32];
    uint32_t count;
    size_t used;
    char text[6144];
};
void sl_identity_facts(const struct sl_engine_options *options, struct sl_identity_facts *facts);

#endif
